//! Bits per dimension of images of the data under a network. A study measures it with `Pipeline::likelihood`; it needs no
//! weights of another network and samples nothing.
use super::metric::{Accumulator, Compared, Metric, MetricSpec, Value, Verb};
use super::none::Nothing;

pub(super) const SPEC: MetricSpec = MetricSpec {
    name: "nll",
    about: "Bits per dimension of images under a network: an upper bound of the negative log-likelihood",
    values: &[
        Value::lower("bits per dimension", "bits per dimension"),
        Value::lower("standard error", "standard error of the bits per dimension"),
        Value::lower("prior", "prior term, bits per dimension"),
        Value::lower("reconstruction", "reconstruction term, bits per dimension"),
        Value::lower("diffusion", "diffusion term, bits per dimension"),
    ],
    compared: Compared::Data,
    network: None,
    protocols: &[],
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |_| Ok(Box::new(Likelihood)),
};

/// The measurement needs the network, which metrics of images do not see.
struct Likelihood;

impl Metric for Likelihood {
    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(Nothing)
    }
}
