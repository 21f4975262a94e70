//! Numbers as bytes of a message. The order of bytes is that of little-endian machines, on all of them.
use crate::error::{Error, Result};

/// A message that is being put together.
#[derive(Default)]
pub(crate) struct Packed(pub Vec<u8>);

impl Packed {
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend((bytes.len() as u64).to_le_bytes());
        self.0.extend(bytes);
    }

    pub fn f32s(&mut self, values: &[f32]) {
        self.joined(&[values]);
    }

    /// The values of all `parts`, as if they were one list.
    pub fn joined(&mut self, parts: &[&[f32]]) {
        let count: usize = parts.iter().map(|part| part.len()).sum();
        // One byte more, with which the group marks what a message holds.
        self.0.reserve(4 * count + 9);
        self.0.extend((4 * count as u64).to_le_bytes());
        for part in parts {
            let start = self.0.len();
            self.0.resize(start + 4 * part.len(), 0);
            let (places, _) = self.0[start..].as_chunks_mut::<4>();
            places.iter_mut().zip(*part).for_each(|(place, v)| *place = v.to_le_bytes());
        }
    }

    /// As many numbers as the reader expects.
    pub fn u64s(&mut self, values: &[u64]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }

    pub fn f64s(&mut self, values: &[f64]) {
        self.0.extend((8 * values.len() as u64).to_le_bytes());
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }
}

/// A message that is being read, in the order in which it was packed.
pub(crate) struct Unpacked<'a>(pub &'a [u8]);

impl<'a> Unpacked<'a> {
    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        self.slice().map(<[u8]>::to_vec)
    }

    pub fn f32s(&mut self) -> Result<Vec<f32>> {
        let (numbers, _) = self.slice()?.as_chunks::<4>();
        Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    pub fn f64s(&mut self) -> Result<Vec<f64>> {
        let (numbers, _) = self.slice()?.as_chunks::<8>();
        Ok(numbers.iter().map(|b| f64::from_le_bytes(*b)).collect())
    }

    pub fn u64s<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or_else(damaged)?;
            (*number, self.0) = (u64::from_le_bytes(*bytes), rest);
        }
        Ok(numbers)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn slice(&mut self) -> Result<&'a [u8]> {
        let [length] = self.u64s()?;
        let length = usize::try_from(length).map_err(|_| damaged())?;
        let (found, rest) = self.0.split_at_checked(length).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(found)
    }
}

fn damaged() -> Error {
    Error::Run("another rank has sent something else than expected; do all run the same version?".into())
}
