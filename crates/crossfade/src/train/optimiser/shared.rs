//! How ranks share an optimiser: who owns which parameter, and what they send each other.
use super::{Gradients, Optimiser, replaced};
use crate::engine::Tensor;
use crate::error::{Error, Result};
use crate::nn::weights::collect;
use crate::ranks::{Group, Packed, Unpacked};
use burn::module::{Module, ModuleMapper, Param};
use crossfade_kernels::sum_sq;
use std::borrow::Cow;

/// The owner of each parameter, for `ranks` ranks: the largest parameters first, each to the rank that has the least so far.
pub(super) fn owners(sizes: &[usize], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(sizes[i]));
    let (mut load, mut owners) = (vec![0; ranks], vec![0; sizes.len()]);
    for i in order {
        let least = (0..ranks).min_by_key(|&rank| load[rank]).unwrap_or(0);
        owners[i] = least;
        load[least] += sizes[i];
    }
    owners
}

impl Optimiser {
    /// The group of ranks that trains.
    pub(in crate::train) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn is_own(&self, parameter: usize) -> bool {
        self.owners[parameter] == self.group.rank()
    }

    /// The gradients of the parameters of `rank`, one after the other.
    pub(in crate::train) fn gradients_for<'a>(&self, rank: usize, gradients: &'a Gradients) -> Vec<&'a [f32]> {
        let own = self.owners.iter().zip(&gradients.0).filter(|(owner, _)| **owner == rank);
        own.map(|(_, values)| &values[..]).collect()
    }

    /// Gradients of the own parameters from [`Optimiser::gradients_for`] of another rank.
    pub(in crate::train) fn own_gradients(&self, values: &[f32]) -> Result<Gradients> {
        self.split(values, |i| self.is_own(i)).map(Gradients)
    }

    /// Values of the parameters for which `holds` is true, one after the other, as a list of all parameters: the others are
    /// empty.
    fn split(&self, mut values: &[f32], holds: impl Fn(usize) -> bool) -> Result<Vec<Vec<f32>>> {
        let damaged =
            || Error::Run("another rank has sent parameters of another size; do all run the same version?".into());
        let mut all = vec![];
        for (i, (_, shape)) in self.names.iter().enumerate() {
            let size = if holds(i) { shape.iter().product() } else { 0 };
            let (own, rest) = values.split_at_checked(size).ok_or_else(damaged)?;
            all.push(own.to_vec());
            values = rest;
        }
        if values.is_empty() { Ok(all) } else { Err(damaged()) }
    }

    /// The global L2 norm of gradients whose parts the ranks have. Squares are added in the order of the parameters, so that it
    /// does not depend on the number of ranks.
    pub(in crate::train) fn norm(&self, gradients: &Gradients) -> Result<f64> {
        if self.group.size() == 1 {
            return Ok(gradients.norm());
        }
        let squares: Vec<f64> = gradients.0.iter().map(|g| sum_sq(g)).collect();
        let mut packed = Packed::default();
        packed.f64s(&squares);
        let all = self.group.to_all(packed.0)?;
        let all = all.iter().map(|part| Unpacked(part).f64s()).collect::<Result<Vec<_>>>()?;
        let of = |(i, &owner): (usize, &usize)| all[owner].get(i).copied().unwrap_or(f64::NAN);
        Ok(self.owners.iter().enumerate().map(of).sum::<f64>().sqrt())
    }

    /// `net` with the new values of the parameters that other ranks own; sends them those of the own ones.
    pub(in crate::train) fn synchronise<M: Module>(&self, net: M) -> Result<M> {
        if self.group.size() == 1 {
            return Ok(net);
        }
        let weights = collect(&net);
        let sent = |i: usize| self.trained[i] && self.is_own(i);
        let own: Vec<&[f32]> =
            weights.iter().enumerate().filter(|(i, _)| sent(*i)).map(|(_, (_, _, w))| &w[..]).collect();
        let mut packed = Packed::default();
        packed.joined(&own);
        let received = self.group.to_all(packed.0)?;
        let mut values: Vec<Option<Vec<f32>>> = vec![None; self.names.len()];
        for (rank, part) in received.iter().enumerate().filter(|(rank, _)| *rank != self.group.rank()) {
            let holds = |i: usize| self.trained[i] && self.owners[i] == rank;
            let parts = self.split(&Unpacked(part).f32s()?, holds)?;
            for (i, part) in parts.into_iter().enumerate().filter(|(i, _)| holds(*i)) {
                values[i] = Some(part);
            }
        }
        Ok(net.map(&mut Replace { at: 0, values }))
    }

    /// The state of all parameters on the first rank, to be written or looked at there; none on the others. Alone, that is this
    /// state itself.
    pub(in crate::train) fn gathered(&self) -> Result<Option<Cow<'_, Self>>> {
        if self.group.size() == 1 {
            return Ok(Some(Cow::Borrowed(self)));
        }
        let mut packed = Packed::default();
        for values in self.kept() {
            packed.joined(&values.iter().map(|values| &values[..]).collect::<Vec<_>>());
        }
        let received = self.group.to_first(packed.0)?;
        if !self.group.is_first() {
            return Ok(None);
        }
        let mut all = self.clone();
        for (rank, part) in received.iter().enumerate() {
            let mut part = Unpacked(part);
            for kept in all.kept_mut() {
                let parts = self.split(&part.f32s()?, |i| self.owners[i] == rank)?;
                for (i, values) in parts.into_iter().enumerate().filter(|(i, _)| self.owners[*i] == rank) {
                    kept[i] = values;
                }
            }
        }
        Ok(Some(Cow::Owned(all)))
    }

    /// Every list of values that owners keep.
    fn kept(&self) -> Vec<&Vec<Vec<f32>>> {
        [&self.ema, &self.m, &self.v].into_iter().chain(self.averages.iter().map(|(_, values)| values)).collect()
    }

    pub(super) fn kept_mut(&mut self) -> Vec<&mut Vec<Vec<f32>>> {
        let averages = self.averages.iter_mut().map(|(_, values)| values);
        [&mut self.ema, &mut self.m, &mut self.v].into_iter().chain(averages).collect()
    }
}

/// Visits the parameters in order and replaces those that have a value here.
struct Replace {
    at: usize,
    values: Vec<Option<Vec<f32>>>,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = self.values[self.at].take();
        self.at += 1;
        let Some(values) = value else { return param };
        let (id, tensor) = (param.id, param.val());
        replaced(id, values, tensor.dims(), &tensor.device())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::engine::Device;
    use crate::ranks::{enter, threads};
    use crossfade_math::PowerProfile;
    use std::sync::Arc;

    /// Averages and moments of a parameter are kept by its owner alone, so that their memory is divided by the number of ranks, up to
    /// the largest parameter.
    #[test]
    fn the_memory_of_the_state_is_divided_by_the_ranks() {
        let text = "[network]\nresolution = 8\nwidth = 16\nmult = [1, 2]\nblocks = 1\nattention = []\n";
        let config = RunConfig::parse(text, "test").unwrap();
        // The average, two moments and one further average.
        let copies = 4;
        for ranks in [1, 2, 3, 4, 8] {
            let kept: Vec<(usize, usize, usize)> = std::thread::scope(|scope| {
                let of = |group: Group| {
                    enter(Arc::new(group));
                    let net = config.network.init(config.ports(), 0, &Device::flex());
                    let state = Optimiser::new(&net, |_| true).with_averages(vec![PowerProfile::new(0.05).unwrap()]);
                    let sizes = state.names.iter().map(|(_, shape)| shape.iter().product::<usize>());
                    let own = state.kept().into_iter().flatten().map(Vec::len).sum();
                    (own, sizes.clone().sum(), sizes.max().unwrap())
                };
                let threads: Vec<_> =
                    threads::groups(ranks).into_iter().map(|group| scope.spawn(move || of(group))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let (_, parameters, largest) = kept[0];
            assert_eq!(kept.iter().map(|(own, ..)| own).sum::<usize>(), copies * parameters, "{ranks} ranks");
            for (own, ..) in &kept {
                let most = copies * (parameters / ranks + largest);
                assert!(*own <= most && *own > 0, "{own} numbers on one of {ranks} ranks, {most} at most");
            }
        }
    }
}
