//! NumPy's `RandomState`. torch-fidelity draws its subsets with it, and equal values need equal subsets.

/// The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), seeded and used as in `numpy.random.RandomState`.
pub struct RandomState {
    key: [u32; N],
    next: usize,
}

const N: usize = 624;
const M: usize = 397;

impl RandomState {
    /// `RandomState(seed)`
    pub fn new(seed: u32) -> Self {
        let mut key = [seed; N];
        for i in 1..N {
            let last = key[i - 1];
            key[i] = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i as u32);
        }
        Self { key, next: N }
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.key[i] & 0x8000_0000) | (self.key[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.key[i] = self.key[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn bits(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let mut y = self.key[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Uniform in 0..=max, by rejection of masked bits as in NumPy.
    fn up_to(&mut self, max: u32) -> u32 {
        // The smallest mask of ones that covers `max`; at most half of the draws are rejected.
        let mask = u32::MAX.checked_shr(max.leading_zeros()).unwrap_or(0);
        loop {
            let value = self.bits() & mask;
            if value <= max {
                return value;
            }
        }
    }

    /// `permutation(n)`, also the order of `choice(n, k, replace=False)`; n below 2³².
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        assert!(u32::try_from(n).is_ok(), "at most 2^32 - 1 numbers are shuffled");
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.up_to(i as u32) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// np.random.RandomState(2020).permutation(10), then permutation(1000)[:5], in NumPy 2.4
    #[test]
    fn numpy_shuffles_alike() {
        let mut state = RandomState::new(2020);
        assert_eq!(state.permutation(10), [2, 4, 9, 1, 5, 7, 6, 3, 8, 0]);
        assert_eq!(state.permutation(1000)[..5], [358, 763, 430, 530, 677]);
    }
}
