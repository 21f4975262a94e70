//! The nearest image of a reference set to each generated image: shows whether a network repeats its training images.
use crate::data::{Dataset, Image};
use crate::error::{Error, Result};

/// An image of the reference set and its distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Its number in the reference set.
    pub index: usize,
    /// The root mean square difference of all values, 0 to 255.
    pub rms: f64,
    /// The image.
    pub image: Image,
}

/// The nearest of `reference` to each of `images`, all of one shape; of equally near ones the first.
///
/// Distances are those of pixels, so that a copy has the distance 0. The reference is read once and not kept, whatever its size.
pub fn nearest(
    images: &[Image],
    reference: &dyn Dataset,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Neighbour>> {
    if images.is_empty() || reference.is_empty() {
        return Err(Error::request("the nearest image needs at least one image on either side"));
    }
    let mut found: Vec<Option<(u64, usize, Image)>> = vec![None; images.len()];
    for index in 0..reference.len() {
        let candidate = reference.get(index)?;
        for (image, best) in images.iter().zip(&mut found) {
            let shape = |i: &Image| (i.width, i.height, i.channels);
            if shape(image) != shape(&candidate) {
                let message = format!("image {index} has the shape {:?}, not {:?}", shape(&candidate), shape(image));
                return Err(Error::request(format!("{}: {message}", reference.name(index))));
            }
            let limit = best.as_ref().map_or(u64::MAX, |(squares, ..)| *squares);
            let squares = squared_difference(&image.pixels, &candidate.pixels);
            if squares < limit {
                *best = Some((squares, index, candidate.clone()));
            }
        }
        progress(index + 1, reference.len());
    }
    let values = images[0].pixels.len() as f64;
    let neighbour = |(squares, index, image)| Neighbour { index, rms: (squares as f64 / values).sqrt(), image };
    Ok(found.into_iter().flatten().map(neighbour).collect())
}

/// Σ (a − b)², exactly.
fn squared_difference(a: &[u8], b: &[u8]) -> u64 {
    // A row of 4096 squares fits into 32 bits, which vectorises.
    let row = |(a, b): (&[u8], &[u8])| -> u64 {
        a.iter().zip(b).map(|(&a, &b)| u32::from(a.abs_diff(b)).pow(2)).sum::<u32>().into()
    };
    a.chunks(4096).zip(b.chunks(4096)).map(row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Set(Vec<Image>);
    impl Dataset for Set {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn get(&self, index: usize) -> Result<Image> {
            Ok(self.0[index].clone())
        }
        fn name(&self, index: usize) -> String {
            index.to_string()
        }
        fn describe(&self) -> String {
            "set".into()
        }
    }

    fn grey(value: u8) -> Image {
        Image::new(2, 2, 1, vec![value; 4])
    }

    #[test]
    fn copies_are_found_and_distances_are_those_of_pixels() {
        let set = Set(vec![grey(0), grey(100), grey(250), grey(100)]);
        let found = nearest(&[grey(100), grey(240), grey(3)], &set, &mut |_, _| ()).unwrap();
        let facts: Vec<_> = found.iter().map(|n| (n.index, n.rms)).collect();
        assert_eq!(facts, [(1, 0.0), (2, 10.0), (0, 3.0)]);
    }

    #[test]
    fn other_shapes_and_empty_sets_are_refused() {
        let other = Set(vec![Image::new(1, 1, 1, vec![0])]);
        assert!(nearest(&[grey(0)], &other, &mut |_, _| ()).unwrap_err().to_string().contains("shape"));
        assert!(nearest(&[], &other, &mut |_, _| ()).is_err());
        assert!(nearest(&[grey(0)], &Set(vec![]), &mut |_, _| ()).is_err());
    }
}
