use super::*;
use crate::engine::{Device, from_host, to_host};
use crate::nn::{Decoders, NetworkConfig, NetworkPorts, UNetConfig, preset};
use crate::rng::{Purpose, Stream};
use crossfade_math::process::{Flow, TimeInput};
use crossfade_math::{Attenuation, NoiseScale, Precond};

fn normals(index: u64) -> Images {
    let shape = [4, 3, 16, 16];
    let mut values = vec![0.0; shape.iter().product()];
    Stream::new(7, index, 0, Purpose::Noise).fill_normal(&mut values);
    Images(from_host(&values, shape, &Device::flex()))
}

/// With velocity scalings and the share of noise as time input, attenuation is the rectified flow: from the same weights the
/// same outputs, and the loss of the flow once for each head. Only the distribution of times is left to tell them apart.
#[test]
fn attenuation_with_velocity_scalings_has_the_flow_s_loss() {
    let config = NetworkConfig::UNet(UNetConfig { decoders: Decoders::One, ..preset("tiny").unwrap() });
    let network = config.init(NetworkPorts::with_phi_parts(1), 3, &Device::flex());
    let (x0, eps) = (normals(0), normals(1));
    let shares = [0.9, 0.55, 0.2, 0.03];
    let flow = Denoiser::new(network.clone(), &config, Process::Flow(Flow {}));
    let objective = Objective::default();
    let loss = |net: &Denoiser, t: Vec<f64>| {
        let batch = Noised::new(&net.process, x0.clone(), &[], eps.clone(), t);
        let raw = net.raw(batch.x_t.0.clone(), &batch.t, &Context::default(), Mode::Eval);
        let loss = to_host(objective.of_raw(net, &batch, raw.clone(), None).total)[0];
        (to_host(raw.phi), loss)
    };
    let (outputs, of_flow) = loss(&flow, shares.to_vec());
    for &noise in NoiseScale::ALL {
        let (precond, time_input) = (Precond::Velocity, TimeInput::NoiseShare);
        let adm = Adm { precond, time_input, ..Adm::new(Attenuation::Constant, noise) };
        let process = Process::Adm(adm);
        let gaussian = process.gaussian().unwrap();
        let t = shares.iter().map(|share| gaussian.time_of_ratio(share / (1.0 - share))).collect();
        let (ours, of_both) = loss(&Denoiser::new(network.clone(), &config, process), t);
        for (a, b) in ours.iter().zip(&outputs) {
            assert!((a - b).abs() < 1e-4, "{noise:?}: {a} {b}");
        }
        assert!((of_both / of_flow - 2.0).abs() < 1e-4, "{noise:?}: {of_both} {of_flow}");
    }
}
