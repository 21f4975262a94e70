//! Any of the networks: the `[network]` section of a configuration, and what is made of it.
//!
//! A new network is a type that implements [`Backbone`], its options that implement [`BackboneConfig`], and a variant here.
use burn::tensor::{Device, Tensor};
use crossfade_math::Problem;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::backbone::{Backbone, BackboneConfig, Context, NetworkPorts};
use super::condition::{CondUNet, CondUNetConfig, load_encoder};
use super::config::{Decoders, UNetConfig};
use super::mode::Mode;
use super::module_macros::enum_module;
use super::unet::{RawHeads, UNet};
use crate::error::Result;
use std::path::PathBuf;

/// The options of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind")]
pub enum NetworkConfig {
    /// The U-Net of unconditional generation (§4.2).
    #[serde(rename = "unet")]
    UNet(UNetConfig),
    /// The U-Net with a condition encoder (§4.6).
    #[serde(rename = "cond-unet")]
    CondUNet(CondUNetConfig),
}

impl From<UNetConfig> for NetworkConfig {
    fn from(config: UNetConfig) -> Self {
        Self::UNet(config)
    }
}

impl From<CondUNetConfig> for NetworkConfig {
    fn from(config: CondUNetConfig) -> Self {
        Self::CondUNet(config)
    }
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self::UNet(UNetConfig::default())
    }
}

/// The kind of a section that names none.
const DEFAULT_KIND: &str = "unet";

impl<'de> Deserialize<'de> for NetworkConfig {
    /// Serde's tagged enums need their tag, so that the default one is put in its place first.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(tag = "kind")]
        enum Tagged {
            #[serde(rename = "unet")]
            UNet(UNetConfig),
            #[serde(rename = "cond-unet")]
            CondUNet(CondUNetConfig),
        }
        let mut section = toml::Table::deserialize(deserializer)?;
        section.entry("kind").or_insert_with(|| DEFAULT_KIND.into());
        // The message alone: the reader of configurations recognises serde's own messages and adds the line.
        let tagged: Tagged = section.try_into().map_err(|e: toml::de::Error| D::Error::custom(e.message()))?;
        Ok(match tagged {
            Tagged::UNet(config) => Self::UNet(config),
            Tagged::CondUNet(config) => Self::CondUNet(config),
        })
    }
}

impl NetworkConfig {
    /// A network with initial weights from `seed`.
    pub fn init(&self, ports: NetworkPorts, seed: u64, device: &Device) -> Network {
        match self {
            Self::UNet(config) => Network::UNet(config.init(ports, seed, device)),
            Self::CondUNet(config) => Network::CondUNet(config.init(ports, seed, device)),
        }
    }

    /// As [`NetworkConfig::init`], with the parts that the options take from files of trained weights. A new run starts
    /// from this; one that is resumed has all weights in its checkpoint.
    pub(crate) fn init_with_pretrained(&self, ports: NetworkPorts, seed: u64, device: &Device) -> Result<Network> {
        match (self, self.init(ports, seed, device)) {
            (Self::CondUNet(config), Network::CondUNet(net)) => {
                let net = match &config.encoder_weights {
                    Some(path) => load_encoder(net, config, path)?,
                    None => net,
                };
                Ok(Network::CondUNet(net))
            }
            (_, net) => Ok(net),
        }
    }

    /// A network whose weights are not drawn until they are used; for weights that come from elsewhere.
    pub fn lazy(&self, ports: NetworkPorts, device: &Device) -> Network {
        match self {
            Self::UNet(config) => Network::UNet(config.lazy(ports, device)),
            Self::CondUNet(config) => Network::CondUNet(config.lazy(ports, device)),
        }
    }

    /// The options of a U-Net without a condition, if it is one.
    pub fn as_unet(&self) -> Option<&UNetConfig> {
        if let Self::UNet(config) = self { Some(config) } else { None }
    }

    /// As [`NetworkConfig::as_unet`], to be changed.
    pub fn as_unet_mut(&mut self) -> Option<&mut UNetConfig> {
        if let Self::UNet(config) = self { Some(config) } else { None }
    }

    /// The options of a network with a condition, to be changed.
    pub fn as_cond_unet_mut(&mut self) -> Option<&mut CondUNetConfig> {
        if let Self::CondUNet(config) = self { Some(config) } else { None }
    }

    /// The file of trained weights that a new network takes parts from.
    pub fn pretrained(&self) -> Option<&PathBuf> {
        match self {
            Self::UNet(_) => None,
            Self::CondUNet(config) => config.encoder_weights.as_ref(),
        }
    }

    /// The same options without a file of trained weights.
    pub(crate) fn without_pretrained(mut self) -> Self {
        if let Self::CondUNet(config) = &mut self {
            config.encoder_weights = None;
        }
        self
    }

    fn options(&self) -> &dyn BackboneConfig {
        match self {
            Self::UNet(config) => config,
            Self::CondUNet(config) => config,
        }
    }
}

impl BackboneConfig for NetworkConfig {
    fn channels(&self) -> usize {
        self.options().channels()
    }
    fn condition_channels(&self) -> Option<usize> {
        self.options().condition_channels()
    }
    fn decoders(&self) -> Decoders {
        self.options().decoders()
    }
    fn unit(&self) -> usize {
        self.options().unit()
    }
    fn resolution(&self) -> Option<usize> {
        self.options().resolution()
    }
    fn classes(&self) -> usize {
        self.options().classes()
    }
    fn augment_dim(&self) -> usize {
        self.options().augment_dim()
    }
    fn log_time(&self) -> bool {
        self.options().log_time()
    }
    fn state_shapes(&self, ports: NetworkPorts) -> Vec<(String, Vec<usize>)> {
        self.options().state_shapes(ports)
    }
    fn is_trained(&self, name: &str) -> bool {
        self.options().is_trained(name)
    }
    fn validate(&self) -> Vec<Problem> {
        self.options().validate()
    }
}

/// A network of any kind. Its parameters have the names that they have in the kind's own type.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a run has few networks, and their weights are on the heap")]
pub enum Network {
    /// The U-Net of unconditional generation.
    UNet(UNet),
    /// The U-Net with a condition encoder.
    CondUNet(CondUNet),
}

impl Network {
    fn backbone(&self) -> &dyn Backbone {
        match self {
            Self::UNet(net) => net,
            Self::CondUNet(net) => net,
        }
    }
}

impl Backbone for Network {
    fn encode(&self, condition: Option<Tensor<4>>, mode: Mode) -> Context {
        self.backbone().encode(condition, mode)
    }
    fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context, mode: Mode) -> RawHeads {
        self.backbone().forward(x, c_noise, context, mode)
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        self.backbone().mixing()
    }
}

enum_module!(Network { UNet, CondUNet });

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{from_vec, to_host, vector};
    use crate::nn::condition::EncoderConfig;
    use crate::nn::weights::{apply, collect, gradients};
    use crate::nn::{DropoutKey, Statistics, preset};
    use burn::module::Module;

    fn unet() -> UNetConfig {
        UNetConfig { augment_dim: 9, ..preset("tiny").unwrap() }
    }

    fn cond_unet() -> CondUNetConfig {
        CondUNetConfig {
            width: 8,
            mult: vec![1, 2],
            encoder: EncoderConfig::Unet { width: 8, stride: 1 },
            condition_windows: vec![[3, 2], [1, 1]],
            feature_windows: vec![[2, 3], [1, 1]],
            ..CondUNetConfig::default()
        }
    }

    fn kinds() -> [NetworkConfig; 2] {
        [NetworkConfig::UNet(unet()), NetworkConfig::CondUNet(cond_unet())]
    }

    const PORTS: NetworkPorts = NetworkPorts { inputs: 1, phi_parts: 2, mixed: true };

    fn waves(shape: [usize; 4], device: &Device) -> Tensor<4> {
        let values = (0..shape.iter().product::<usize>()).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
        from_vec(values, shape, device)
    }

    /// Weights that are nowhere zero, so that every branch has a part in the outputs.
    fn nonzero<M: Module>(module: M) -> M {
        let shapes: std::collections::BTreeMap<_, _> = crate::nn::named::shapes(&module).into_iter().collect();
        let value = |i: usize| ((i * 7919 + 13) % 101) as f32 / 404.0 + 0.01;
        let source = |name: &str| Some((shapes[name].clone(), (0..shapes[name].iter().product()).map(value).collect()));
        apply(module, &source).unwrap()
    }

    #[test]
    fn parameters_have_the_names_and_values_of_the_bare_networks() {
        let device = Device::flex();
        let [a, b] = kinds().map(|config| config.init(PORTS, 3, &device));
        assert_eq!(collect(&a), collect(&unet().init(PORTS, 3, &device)));
        assert_eq!(collect(&b), collect(&cond_unet().init(PORTS, 3, &device)));
        for config in kinds() {
            let lazy = config.lazy(PORTS, &device);
            assert_eq!(crate::nn::named::shapes(&lazy), config.state_shapes(PORTS));
            let trained = config.init(PORTS, 3, &device.clone().autodiff());
            let through = trained.clone().valid().train().fork(&device).to_device(&device).materialize();
            assert_eq!(collect(&through), collect(&config.init_with_pretrained(PORTS, 3, &device).unwrap()));
        }
        assert_eq!(kinds()[0].parameter_count(PORTS), unet().parameter_count(PORTS));
    }

    #[test]
    fn outputs_and_gradients_are_those_of_the_bare_networks() {
        let device = Device::flex().autodiff();
        let key = DropoutKey { seed: 1, step: 2, samples: vec![4, 7] };
        let x = waves([2, 3, 16, 16], &device);
        let (c_noise, labels) = (vector(&[-0.3, -2.0], &device), Some(from_vec(vec![0.1; 18], [2, 9], &device)));
        let learn =
            |raw: &RawHeads| (raw.phi.clone().square().sum() + raw.eps.clone().unwrap().square().sum()).backward();
        let same = |a: RawHeads, b: RawHeads| {
            assert_eq!(to_host(a.phi), to_host(b.phi));
            assert_eq!(to_host(a.eps.unwrap()), to_host(b.eps.unwrap()));
        };

        let bare = nonzero(unet().lazy(PORTS, &device));
        let any = Network::UNet(bare.clone());
        let seen = Statistics::default();
        let mode = Mode::Train { dropout: &key, statistics: &seen };
        let context = any.encode(None, mode).with_labels(labels.clone());
        let ours = any.forward(x.clone(), c_noise.clone(), &context, mode);
        let want = bare.forward(x.clone(), c_noise.clone(), &Context::default().with_labels(labels), Some(&key));
        assert_eq!(gradients(&any, learn(&ours)), gradients(&bare, learn(&want)));
        same(ours, want);
        let eval = any.forward(x.clone(), c_noise.clone(), &Context::default(), Mode::Eval);
        same(eval, bare.forward(x.clone(), c_noise.clone(), &Context::default(), None));
        assert_eq!(any.mixing().map(to_host), Backbone::mixing(&bare).map(to_host));

        let bare = nonzero(cond_unet().lazy(PORTS, &device));
        let any = Network::CondUNet(bare.clone());
        let condition = waves([2, 3, 9, 7], &device);
        let noted = [Statistics::default(), Statistics::default()];
        let [mode, bare_mode] = noted.each_ref().map(|statistics| Mode::Train { dropout: &key, statistics });
        let context = any.encode(Some(condition.clone()), mode);
        let ours = any.forward(x.clone(), c_noise.clone(), &context, mode);
        let features = bare.encode(condition.clone(), bare_mode);
        let want = bare.forward(x.clone(), c_noise.clone(), &features, bare_mode);
        assert_eq!(gradients(&any, learn(&ours)), gradients(&bare, learn(&want)));
        same(ours, want);
        let context = any.encode(Some(condition.clone()), Mode::Eval);
        let eval = any.forward(x.clone(), c_noise.clone(), &context, Mode::Eval);
        same(eval, bare.forward(x, c_noise, &bare.encode(condition, Mode::Eval), Mode::Eval));
        // Statistics of the batches find their buffers through the enum, too.
        let [ours, want] = noted;
        assert_eq!(collect(&ours.into_module(any)), collect(&want.into_module(bare)));
    }

    #[test]
    fn sections_name_their_kind_or_mean_the_first() {
        let parsed: NetworkConfig = toml::from_str("width = 32\nmult = [1, 2]").unwrap();
        assert_eq!(parsed, NetworkConfig::UNet(UNetConfig { width: 32, mult: vec![1, 2], ..UNetConfig::default() }));
        assert_eq!(toml::from_str::<NetworkConfig>("").unwrap(), NetworkConfig::default());
        for config in kinds() {
            let text = toml::to_string(&config).unwrap();
            assert!(text.starts_with("kind = "), "{text}");
            assert_eq!(toml::from_str::<NetworkConfig>(&text).unwrap(), config);
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<NetworkConfig>(&json).unwrap(), config);
        }
        let error = |text: &str| toml::from_str::<NetworkConfig>(text).unwrap_err().message().to_string();
        assert!(error("widht = 3").starts_with("unknown field `widht`"), "{}", error("widht = 3"));
        let unknown = error("kind = \"gan\"");
        assert!(unknown.starts_with("unknown variant `gan`") && unknown.contains("`cond-unet`"), "{unknown}");
        assert!(error("kind = \"cond-unet\"\nresolution = 3").starts_with("unknown field `resolution`"));
    }

    #[test]
    fn questions_are_answered_by_the_kind() {
        let [a, b] = kinds();
        assert_eq!((a.condition_channels(), a.resolution(), a.unit(), a.log_time()), (None, Some(16), 2, false));
        assert_eq!((b.condition_channels(), b.resolution(), b.unit(), b.log_time()), (Some(3), None, 2, true));
        assert_eq!((a.augment_dim(), b.augment_dim()), (9, 0));
        assert!(a.is_trained("out_conv.weight") && !b.is_trained("time_mlp.0.W"));
        let bad = NetworkConfig::CondUNet(CondUNetConfig { width: 9, ..cond_unet() });
        assert_eq!(bad.validate().iter().map(|p| p.key.as_str()).collect::<Vec<_>>(), ["width"]);
    }
}
