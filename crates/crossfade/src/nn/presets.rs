//! Unconditional U-Nets by name.
use super::config::{Decoders, UNetConfig};

/// The names that [`preset`] knows: the networks of the paper and of its releases (§4.3), and a small one.
pub const PRESETS: [&str; 9] = [
    "tiny",
    "cifar10-two-m192",
    "cifar10-two-m160",
    "cifar10-two-m128",
    "cifar10-one-m160",
    "cifar10-one-m192",
    "celeba-two-m96",
    "celeba-two-m128",
    "celeba-one-m128",
];

/// The network with a name of [`PRESETS`]. The `celeba` ones work on 64x64 latents.
pub fn preset(name: &str) -> Option<UNetConfig> {
    use Decoders::{One, Two};
    let cifar = |decoders, width, dropout| UNetConfig {
        width,
        blocks: 3,
        decoders,
        dropout,
        augment_dim: 9,
        ..UNetConfig::default()
    };
    let celeba = |decoders, width, mult: [usize; 4], attention: [usize; 2]| UNetConfig {
        resolution: 64,
        width,
        mult: mult.to_vec(),
        blocks: 3,
        attention: attention.to_vec(),
        decoders,
        ..UNetConfig::default()
    };
    Some(match name {
        "tiny" => UNetConfig {
            resolution: 16,
            width: 32,
            mult: vec![1, 2],
            blocks: 1,
            attention: vec![8],
            ..UNetConfig::default()
        },
        "cifar10-two-m192" => cifar(Two, 192, 0.1),
        "cifar10-two-m160" => cifar(Two, 160, 0.1),
        "cifar10-two-m128" => cifar(Two, 128, 0.1),
        "cifar10-one-m160" => cifar(One, 160, 0.12),
        "cifar10-one-m192" => cifar(One, 192, 0.1),
        "celeba-two-m96" => celeba(Two, 96, [1, 2, 3, 4], [32, 16]),
        "celeba-two-m128" => celeba(Two, 128, [1, 2, 2, 2], [16, 8]),
        "celeba-one-m128" => celeba(One, 128, [1, 2, 2, 2], [16, 8]),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::nn::{BackboneConfig, NetworkPorts};

    #[test]
    fn presets_have_the_sizes_of_the_paper() {
        let sizes = [
            ("cifar10-two-m192", 1, 216_141_136),
            ("cifar10-two-m192", 2, 216_146_323),
            ("cifar10-two-m160", 1, 150_134_896),
            ("cifar10-one-m160", 1, 90_095_048),
            ("cifar10-one-m192", 1, 129_704_072),
            ("cifar10-two-m128", 1, 96_121_744),
            ("celeba-two-m96", 1, 121_053_232),
            ("celeba-one-m128", 1, 57_681_544),
            ("celeba-two-m128", 1, 96_120_592),
        ];
        for (name, phi_parts, count) in sizes {
            assert_eq!(preset(name).unwrap().parameter_count(NetworkPorts::with_phi_parts(phi_parts)), count, "{name}");
        }
    }

    #[test]
    fn every_preset_is_valid_and_survives_toml() {
        for name in PRESETS {
            let config = preset(name).unwrap();
            assert_eq!(config.validate(), vec![], "{name}");
            assert_eq!(toml::from_str::<UNetConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
        assert_eq!(preset("huge"), None);
        assert!(toml::from_str::<UNetConfig>("widht = 3").unwrap_err().to_string().contains("widht"));
    }
}
