//! What a micro-batch contributes to a training step, and how ranks share it.
//!
//! Micro-batch number m of a step belongs to rank m mod N. After every round of N micro-batches each rank sends the others what
//! they need of its own one: to each owner the gradients of its parameters, to everybody the rest. Contributions are added in the
//! order of the micro-batches, so that the sums are those of one process, to the bit.
use super::optimiser::{Gradients, Optimiser};
use crate::error::Result;
use crate::nn::PlacedMoment;
use crate::ranks::{Packed, Unpacked};

/// The contribution of one micro-batch.
#[derive(Default)]
pub(super) struct Contribution {
    /// Losses and their terms.
    pub values: Vec<f64>,
    /// The mean image of the batch; empty if it is not wanted.
    pub mean: Vec<f64>,
    /// The gradients of each optimiser's network.
    pub gradients: Vec<Gradients>,
    /// Statistics of batch normalisations.
    pub moments: Vec<PlacedMoment>,
}

/// The contributions of a round in the order of the micro-batches. `own` is that of this rank, if it has one in this round;
/// of the gradients of others the own parts come back.
pub(super) fn share(own: Option<Contribution>, optimisers: &[&Optimiser]) -> Result<Vec<Contribution>> {
    let Some(group) = optimisers.first().map(|optimiser| optimiser.group()) else { return Ok(vec![]) };
    if group.size() == 1 {
        return Ok(own.into_iter().collect());
    }
    let parts = (0..group.size()).map(|rank| own.as_ref().map_or(vec![], |own| own.packed(rank, optimisers))).collect();
    let received = group.exchange(parts)?;
    let present = received.iter().filter(|part| !part.is_empty());
    present.map(|part| Contribution::unpacked(Unpacked(part), optimisers)).collect()
}

impl Contribution {
    /// Whether all losses and gradients are finite.
    pub fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite()) && self.gradients.iter().all(Gradients::is_finite)
    }

    /// As a message for `rank`.
    fn packed(&self, rank: usize, optimisers: &[&Optimiser]) -> Vec<u8> {
        let mut packed = Packed::default();
        packed.f64s(&self.values);
        packed.f64s(&self.mean);
        // The discriminator of an autoencoder has no gradients in the first steps.
        packed.f64s(&[self.gradients.len() as f64]);
        for (gradients, optimiser) in self.gradients.iter().zip(optimisers) {
            packed.joined(&optimiser.gradients_for(rank, gradients));
        }
        for (place, momentum, values) in &self.moments {
            packed.f64s(&[*place as f64]);
            packed.f32s(&[*momentum]);
            packed.f32s(values);
        }
        packed.0
    }

    fn unpacked(mut part: Unpacked<'_>, optimisers: &[&Optimiser]) -> Result<Self> {
        let (values, mean) = (part.f64s()?, part.f64s()?);
        let count = part.f64s()?.first().map_or(0, |&count| count as usize);
        let mut gradients = vec![];
        for optimiser in optimisers.iter().take(count) {
            gradients.push(optimiser.own_gradients(&part.f32s()?)?);
        }
        let mut moments = vec![];
        while !part.is_empty() {
            let place = part.f64s()?.first().map_or(0, |&place| place as usize);
            let momentum = part.f32s()?.first().copied().unwrap_or_default();
            moments.push((place, momentum, part.f32s()?));
        }
        Ok(Self { values, mean, gradients, moments })
    }
}

/// The sum of contributions; the mean images are left to the caller.
#[derive(Default)]
pub(super) struct Sum {
    pub values: Vec<f64>,
    pub gradients: Vec<Gradients>,
    pub moments: Vec<PlacedMoment>,
}

impl Sum {
    /// Adds the next contribution.
    pub fn add(&mut self, next: Contribution) {
        if self.values.is_empty() {
            self.values = vec![0.0; next.values.len()];
        }
        self.values.iter_mut().zip(&next.values).for_each(|(sum, value)| *sum += value);
        match self.gradients.is_empty() {
            true => self.gradients = next.gradients,
            false => self.gradients.iter_mut().zip(&next.gradients).for_each(|(sum, g)| sum.add(g)),
        }
        self.moments.extend(next.moments);
    }
}
