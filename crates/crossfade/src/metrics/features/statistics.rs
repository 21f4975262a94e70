//! Statistics of image sets and their files: `mu` and `sigma` in the format of pytorch-fid, and sums that can be
//! merged exactly.
use super::extract::PORTION;
use super::npz::{Npz, Values, write};
use super::sums::BLOCK;
use super::{Extractor, FeatureSums, Gaussian, Protocol};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::ranks;
use std::path::Path;

/// Statistics of the features of an image set.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Mean and covariance.
    pub gaussian: Gaussian,
    /// The sums from which they were computed; other programs do not store them.
    pub sums: Option<FeatureSums>,
    /// The protocol by which images were prepared, if known.
    pub protocol: Option<Protocol>,
    /// SHA-256 of the network's weights, if known.
    pub weights: Option<String>,
}

impl Statistics {
    /// The statistics of the features in `sums`.
    pub fn new(sums: FeatureSums, protocol: Option<Protocol>, weights: Option<String>) -> Result<Self> {
        let sums = sums.complete();
        Ok(Self { gaussian: Gaussian::of(&sums)?, sums: Some(sums), protocol, weights })
    }

    /// The statistics of an image set. Features are summed and not kept, so that the memory does not depend on the
    /// number of images. Ranks share the images, and all of them get the result.
    pub fn of(extractor: &Extractor, images: &dyn Dataset, progress: &mut dyn FnMut(usize, usize)) -> Result<Self> {
        let mut sums = FeatureSums::new(super::FEATURES);
        let mut add = |row: &[f32]| {
            sums.push(row);
            Ok(())
        };
        extractor.each_together(images, 0..images.len(), &mut add, progress)?;
        Self::new(sums, Some(extractor.protocol()), Some(extractor.hash().to_owned()))
    }

    /// As [`Self::of`] with the same bits, but resumable: the sums are written to the file `part` after every
    /// `blocks` blocks of [`FeatureSums`], and continued from there. `None` if `stop` became true before the end.
    pub fn resumed(
        extractor: &Extractor,
        images: &dyn Dataset,
        (part, blocks): (&Path, usize),
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Self>> {
        let of = |sums| Self::new(sums, Some(extractor.protocol()), Some(extractor.hash().to_owned()));
        let (total, every) = (images.len(), blocks.max(1) * BLOCK);
        // Portions end where blocks end, since only sums of complete blocks can be continued exactly.
        let portion = PORTION.next_multiple_of(BLOCK).min(every);
        let fits = |sums: &FeatureSums| {
            let n = sums.count() as usize;
            sums.dim() == super::FEATURES && n < total && n.is_multiple_of(BLOCK)
        };
        // A damaged file, or one of other weights or images, is ignored: starting again is always right.
        let stored = Self::load(part).ok().filter(|stored| stored.check_made_by(extractor).is_ok());
        let stored = stored.and_then(|stored| stored.sums).filter(fits);
        let mut sums = stored.unwrap_or_else(|| FeatureSums::new(super::FEATURES));
        let (mut done, group) = (sums.count() as usize, ranks::current());
        group.agree(&[("number of images in stored statistics", done.to_string())])?;
        while done < total {
            if group.any(stop())? {
                if done > 0 && group.is_first() {
                    of(sums)?.save(part)?;
                }
                return Ok(None);
            }
            let end = (done + portion).min(total);
            let mut add = |row: &[f32]| {
                sums.push(row);
                Ok(())
            };
            extractor.each_together(images, done..end, &mut add, progress)?;
            done = end;
            if done < total && done.is_multiple_of(every) && group.is_first() {
                of(sums.clone())?.save(part)?;
            }
        }
        of(sums).map(Some)
    }

    /// The number of images, if known.
    pub fn count(&self) -> Option<u64> {
        self.sums.as_ref().map(FeatureSums::count)
    }

    /// Writes an npz that pytorch-fid reads too.
    pub fn save(&self, path: &Path) -> Result<()> {
        let dim = self.gaussian.mean.len();
        // Products of the last vectors that were added may not be in the sums yet.
        let sums = self.sums.clone().map(FeatureSums::complete);
        let mut arrays = vec![
            ("mu", vec![dim], Values::F64(&self.gaussian.mean)),
            ("sigma", vec![dim, dim], Values::F64(&self.gaussian.covariance)),
        ];
        if let Some(sums) = &sums {
            let (n, sum, outer) = sums.sums();
            arrays.push(("n", vec![], Values::I64(n as i64)));
            arrays.push(("sum", vec![dim], Values::F64(sum)));
            arrays.push(("outer", vec![dim, dim], Values::F64(outer)));
        }
        if let Some(protocol) = self.protocol {
            arrays.push(("protocol", vec![protocol.name().len()], Values::Text(protocol.name())));
        }
        if let Some(weights) = &self.weights {
            arrays.push(("weights", vec![weights.len()], Values::Text(weights)));
        }
        let views: Vec<_> = arrays.iter().map(|(name, shape, values)| (*name, &shape[..], *values)).collect();
        write(path, &views)
    }

    /// Reads a file written by [`Self::save`] or pytorch-fid.
    pub fn load(path: &Path) -> Result<Self> {
        let mut file = Npz::open(path)?;
        let square = |file: &mut Npz, vector: &str, matrix: &str| {
            let ((shape, mean), (sides, square)) = (file.numbers(vector)?, file.numbers(matrix)?);
            if shape.len() != 1 || sides != [mean.len(), mean.len()] || mean.is_empty() {
                let message = format!("{vector} of shape {shape:?} does not go with {matrix} of shape {sides:?}");
                return Err(Error::file(path, message));
            }
            if !mean.iter().chain(&square).all(|v| v.is_finite()) {
                return Err(Error::file(path, format!("{vector} or {matrix} has values that are no numbers")));
            }
            Ok((mean, square))
        };
        let (mean, covariance) = square(&mut file, "mu", "sigma")?;
        let gaussian = Gaussian { mean, covariance };
        gaussian.check().map_err(|why| Error::file(path, format!("sigma is no covariance: {why}")))?;
        let mut sums = None;
        // Checked also where nothing else is there to use it: statistics of no images are none.
        let mut count = None;
        if file.has("n") {
            let n = file.numbers("n")?.1.first().copied().unwrap_or(0.0);
            // Above 2^53 numbers are not whole any more, and a covariance needs two images.
            if !(2.0..=9e15).contains(&n) || n.fract() != 0.0 {
                return Err(Error::file(path, format!("n is {n}; statistics are of two images or more")));
            }
            count = Some(n as u64);
        }
        if let Some(n) = count
            && file.has("sum")
            && file.has("outer")
        {
            let (sum, outer) = square(&mut file, "sum", "outer")?;
            let found = FeatureSums::from_sums(n, sum, outer);
            // FID uses the one, merging the other.
            if !Gaussian::of(&found)?.is_near(&gaussian) {
                return Err(Error::file(path, "n, sum and outer are not those of mu and sigma; make the file anew"));
            }
            sums = Some(found);
        }
        let protocol = (file.text("protocol")?)
            .map(|name| Protocol::parse(&name).map_err(|unknown| Error::file(path, unknown.to_string())));
        let (protocol, weights) = (protocol.transpose()?, file.text("weights")?);
        Ok(Self { gaussian, sums, protocol, weights })
    }

    /// An error if both are known to differ in protocol or weights. Unknown values are accepted, since pytorch-fid
    /// does not store them.
    pub fn check_alike(&self, other: &Self) -> Result<()> {
        self.check(other.protocol, other.weights.as_deref())
    }

    /// An error if they are known to differ from `extractor` in protocol or weights.
    pub(crate) fn check_made_by(&self, extractor: &Extractor) -> Result<()> {
        self.check(Some(extractor.protocol()), Some(extractor.hash()))
    }

    fn check(&self, protocol: Option<Protocol>, weights: Option<&str>) -> Result<()> {
        if let (Some(a), Some(b)) = (self.protocol, protocol)
            && a != b
        {
            return Err(Error::request(format!(
                "statistics of two protocols, {a} and {b}: their distance means nothing; make both with one protocol"
            )));
        }
        if let (Some(a), Some(b)) = (self.weights.as_deref(), weights)
            && a != b
        {
            return Err(Error::request(format!(
                "statistics of two sets of weights, {a} and {b}: make both with the same weights"
            )));
        }
        Ok(())
    }

    /// The statistics of the images of all shards, exactly as if they had been one set.
    pub fn merge(shards: Vec<Self>) -> Result<Self> {
        let mut shards = shards.into_iter();
        let mut first = shards.next().ok_or_else(|| Error::request("nothing to merge"))?;
        let sums = |shard: &mut Self| {
            let missing = "statistics without sums (of another program) cannot be merged exactly; \
                           make them with `crossfade eval stats`";
            shard.sums.take().ok_or_else(|| Error::request(missing))
        };
        let mut total = sums(&mut first)?;
        for mut shard in shards {
            first.check_alike(&shard)?;
            total.merge(sums(&mut shard)?)?;
            first.protocol = first.protocol.or(shard.protocol);
            first.weights = first.weights.or(shard.weights);
        }
        let merged = Self::new(total, first.protocol, first.weights)?;
        merged
            .gaussian
            .check()
            .map_err(|why| Error::Run(format!("the merged statistics have no covariance: {why}")))?;
        Ok(merged)
    }
}
