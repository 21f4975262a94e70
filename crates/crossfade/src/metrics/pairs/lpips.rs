//! LPIPS of image pairs; the network is in `nn::lpips`.
use rayon::prelude::*;

use super::{Evaluation, Pair, Pairs, Picture, Progress, portions, summarised};
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::error::Result;
use crate::metrics::Report;
use crate::nn::lpips::Lpips;

/// Pixels that go through the network at once, unless one picture has more.
const PIXELS: usize = 1 << 18;

/// Measures all pairs with a network.
pub fn lpips(net: &Lpips, pairs: &Pairs, device: &Device, progress: Progress) -> Result<Evaluation> {
    let values = portions(pairs, progress, |portion| {
        let loaded: Vec<_> = portion.par_iter().map(Pair::load).collect::<Vec<_>>();
        let loaded = loaded.into_iter().collect::<Result<Vec<_>>>()?;
        let mut values = Vec::with_capacity(portion.len());
        while values.len() < portion.len() {
            let rest = &loaded[values.len()..];
            let size = |p: &Picture| (p.width, p.height, p.channels);
            let first = &rest[0].0;
            let most = (PIXELS / (first.width * first.height)).max(1);
            let batch = rest.iter().take(most).take_while(|(a, _)| size(a) == size(first)).count();
            let names = &portion[values.len()..][..batch];
            values.extend(batch_values(net, &rest[..batch], names, device)?);
        }
        Ok(values)
    })?;
    let report = Report::new("lpips")
        .with("protocol", format!("lpips 0.1, {}", net.backbone().name()))
        .with("weights", format!("{} sha256:{}", net.path().display(), net.sha256()))
        .with("values", "-1 to 1, at the pictures' own size");
    Ok(summarised(report, pairs, values))
}

/// Pairs of one size through the network.
fn batch_values(net: &Lpips, loaded: &[(Picture, Picture)], pairs: &[Pair], device: &Device) -> Result<Vec<f64>> {
    let (side, needed) = (loaded[0].0.width.min(loaded[0].0.height), net.backbone().min_side());
    if side < needed {
        let name = net.backbone().name();
        return Err(pairs[0].error(format!("lpips with {name} needs sides of {needed} pixels, there are {side}")));
    }
    let outputs = tensor(loaded.iter().map(|(output, _)| output), device);
    let targets = tensor(loaded.iter().map(|(_, target)| target), device);
    let values: Vec<f64> = to_host(net.forward(outputs, targets)).into_iter().map(f64::from).collect();
    match values.iter().position(|v| !v.is_finite()) {
        Some(i) => Err(pairs[i].error(format!("lpips gives {}; are the weights damaged?", values[i]))),
        None => Ok(values),
    }
}

/// # Shapes
/// B pictures of one size to `[B, C, H, W]` from −1 to 1.
fn tensor<'a>(pictures: impl Iterator<Item = &'a Picture>, device: &Device) -> Tensor<4> {
    let (mut values, mut shape) = (vec![], [0; 4]);
    for picture in pictures {
        let c = picture.channels;
        shape = [shape[0] + 1, c, picture.height, picture.width];
        let plane = |k: usize| picture.values.iter().skip(k).step_by(c).map(|v| (v / 127.5 - 1.0) as f32);
        (0..c).for_each(|k| values.extend(plane(k)));
    }
    from_vec(values, shape, device)
}
