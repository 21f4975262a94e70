//! Mutations of inputs for the test that runs without libFuzzer: the same ones every time.

/// Random numbers that are a function of their seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `most`; zero if that is zero.
    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}

/// An input of the corpus, changed in one to four places: bits, bytes, numbers at their limits, words of the dictionary, parts
/// removed, repeated, or taken from another input.
pub fn mutated(corpus: &[Vec<u8>], words: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const LIMITS: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + 1 + random.below(16)).min(input.len());
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => {
                let number = LIMITS[random.below(LIMITS.len())].to_le_bytes();
                let bytes = &number[..[1, 2, 4, 8][random.below(4)]];
                let end = (at + bytes.len()).min(input.len());
                input.splice(at..end, bytes.iter().copied());
            }
            3 if !words.is_empty() => {
                let end = if random.below(2) == 0 { at } else { end };
                input.splice(at..end, words[random.below(words.len())].iter().copied());
            }
            4 => drop(input.drain(at.min(end)..end)),
            5 => {
                let part = input[at.min(end)..end].to_vec();
                (0..1 + random.below(3)).for_each(|_| drop(input.splice(at..at, part.iter().copied())));
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let part = &other[from..(from + random.below(64)).min(other.len())];
                input.splice(at..end.max(at), part.iter().copied());
            }
            _ => input.truncate(at.max(input.len() / 2)),
        }
    }
    input
}

/// The words of a dictionary of libFuzzer: in each line a text in quotes, with `\xHH` for bytes.
pub fn words(dictionary: &str) -> Vec<Vec<u8>> {
    let quoted = |line: &str| Some(line.trim().split_once('"')?.1.strip_suffix('"')?.to_string());
    let lines = dictionary.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(quoted).map(|text| unescaped(&text)).collect()
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (vec![], text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, rest) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = String::from_utf8_lossy(&[*high, *low]).into_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
                rest = after;
            }
            (b'\\', [escaped, after @ ..]) => {
                bytes.push(*escaped);
                rest = after;
            }
            _ => bytes.push(first),
        }
    }
    bytes
}
