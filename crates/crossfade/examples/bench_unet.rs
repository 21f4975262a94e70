//! Times the network: `bench_unet [forward|train|sample|all] [batch] [repeat] [width] [one]`.
#![allow(clippy::print_stdout)]
use crossfade::bench::{What, unet};
use crossfade::engine::Device;
use crossfade::nn::{Decoders, UNetConfig};

fn main() -> crossfade::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |i: usize| words.get(i).map(String::as_str);
    let number = |i: usize, default: usize| word(i).and_then(|w| w.parse().ok()).unwrap_or(default);
    let (batch, repeat, width) = (number(1, 16), number(2, 5), number(3, 64));
    let decoders = if word(4) == Some("one") { Decoders::One } else { Decoders::Two };
    for (name, what) in
        [("forward", What::Forward), ("train", What::Train { recompute: false }), ("sample", What::Sample)]
    {
        if [None, Some("all"), Some(name)].contains(&word(0)) {
            let network = UNetConfig { width, decoders, ..UNetConfig::default() };
            let timing = unet(what, network, batch, 10, repeat, &Device::flex())?;
            println!("{name:8} {timing:?}");
        }
    }
    Ok(())
}
