//! The kernels that a network calls, with their shapes and how often each is called.
use crate::nn::config::{BlockPlan, Resample};
use crate::nn::{BackboneConfig, Decoders, NetworkPorts, UNetConfig};
use crossfade_kernels::attention::AttentionShape;
use crossfade_kernels::conv::{Algorithm, ConvShape};
use crossfade_kernels::linear::LinearShape;
use crossfade_kernels::norm::NormShape;

/// One kernel with one shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Case {
    /// A convolution.
    Conv(ConvShape),
    /// Self-attention of image positions.
    Attention(AttentionShape),
    /// A dense layer.
    Linear(LinearShape),
    /// Group normalisation.
    Norm {
        /// The shape.
        shape: NormShape,
        /// Whether scale and shift from the time embedding follow.
        modulated: bool,
        /// Whether SiLU follows.
        silu: bool,
    },
    /// 2x downsampling by averaging.
    Downsample {
        /// Batch size times channels.
        planes: usize,
        /// Side of the larger of the two feature maps.
        side: usize,
    },
    /// 2x nearest-neighbour upsampling.
    Upsample {
        /// Batch size times channels.
        planes: usize,
        /// Side of the larger of the two feature maps.
        side: usize,
    },
    /// Concatenation of two tensors along their channels.
    Concat {
        /// Batch size.
        n: usize,
        /// Elements per sample of both tensors.
        sizes: [usize; 2],
    },
    /// A sum of two tensors.
    Add(usize),
    /// SiLU alone.
    Silu(usize),
    /// Dropout, whose mask is generated within the kernel.
    Dropout {
        /// Batch size.
        n: usize,
        /// Elements per sample.
        size: usize,
    },
    /// The optimiser's step.
    AdamW(usize),
    /// The moving average of the weights.
    Ema(usize),
    /// The squared norm of a gradient.
    SumSq(usize),
}

/// Groups of kernels, whose times are added up in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// 3x3 convolutions with stride 1.
    Conv3x3,
    /// 1x1 convolutions.
    Conv1x1,
    /// All other convolutions.
    ConvOther,
    /// Self-attention.
    Attention,
    /// Dense layers.
    Linear,
    /// Normalisation with the operations that are fused with it.
    Norm,
    /// Resampling, concatenation, sums and elementwise functions.
    Elementwise,
    /// The optimiser, the moving average of the weights and the gradient norm.
    Update,
}

impl Kind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conv3x3 => "conv 3x3",
            Self::Conv1x1 => "conv 1x1",
            Self::ConvOther => "conv, others",
            Self::Attention => "attention",
            Self::Linear => "dense",
            Self::Norm => "norm+SiLU",
            Self::Elementwise => "elementwise",
            Self::Update => "AdamW+EMA",
        }
    }
}

impl Case {
    /// The group that it belongs to.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Conv(ConvShape { kernel: 3, stride: 1, .. }) => Kind::Conv3x3,
            Self::Conv(ConvShape { kernel: 1, .. }) => Kind::Conv1x1,
            Self::Conv(_) => Kind::ConvOther,
            Self::Attention(_) => Kind::Attention,
            Self::Linear(_) => Kind::Linear,
            Self::Norm { .. } => Kind::Norm,
            Self::AdamW(_) | Self::Ema(_) | Self::SumSq(_) => Kind::Update,
            _ => Kind::Elementwise,
        }
    }

    /// Whether there is a kernel for it. Dense layers whose number of inputs is not a multiple of the vector width
    /// are computed by the engine.
    pub(crate) fn has_kernel(&self) -> bool {
        !matches!(self, Self::Linear(shape) if !shape.fits())
    }

    /// Whether it is computed by Winograd's method.
    pub(crate) fn winograd(&self) -> bool {
        matches!(self, Self::Conv(shape) if Algorithm::choose(shape) == Algorithm::Winograd)
    }

    /// The name in reports: kernel, batch size, channels, and the side of the feature map after `@`.
    pub fn name(&self) -> String {
        match *self {
            Self::Conv(s) => {
                let stride = if s.stride == 1 { String::new() } else { format!("/{}", s.stride) };
                let mark = if self.winograd() { " W" } else { "" };
                format!("conv {k}x{k}{stride} {}x{}→{} @{}{mark}", s.n, s.ci, s.co, s.h, k = s.kernel)
            }
            Self::Attention(s) => format!("attention {}x{}x{}, {} positions", s.n, s.heads, s.d, s.positions),
            Self::Linear(s) => format!("dense {}x{}→{}", s.n, s.cin, s.cout),
            Self::Norm { shape, modulated, silu } => {
                let modulated = if modulated { "+mod" } else { "" };
                let silu = if silu { "+SiLU" } else { "" };
                format!("norm{modulated}{silu} {}x{} @{}", shape.n, shape.c, shape.hw.isqrt())
            }
            Self::Downsample { planes, side } => format!("halve {planes} planes @{side}"),
            Self::Upsample { planes, side } => format!("double {planes} planes to @{side}"),
            Self::Concat { n, sizes: [a, b] } => format!("join {n}x({}+{})", short(a), short(b)),
            Self::Add(len) => format!("add {}", short(len)),
            Self::Silu(len) => format!("SiLU {}", short(len)),
            Self::Dropout { n, size } => format!("dropout {n}x{}", short(size)),
            Self::AdamW(len) => format!("AdamW {}", short(len)),
            Self::Ema(len) => format!("EMA {}", short(len)),
            Self::SumSq(len) => format!("norm of gradients {}", short(len)),
        }
    }
}

/// Formats a length with binary prefixes: 65536 as `64Ki`, 17312345 as `16.5Mi`.
fn short(len: usize) -> String {
    match len {
        0..1024 => len.to_string(),
        1024..1_048_576 => format!("{}Ki", (len as f64 / 102.4).round() / 10.0),
        _ => format!("{}Mi", (len as f64 / 104_857.6).round() / 10.0),
    }
}

/// Distinct cases, each with the number of its calls.
#[derive(Clone, Debug, Default)]
pub struct Counted(pub Vec<(Case, usize)>);

impl Counted {
    /// Counts one more call of `case`.
    pub fn add(&mut self, case: Case) {
        match self.0.iter_mut().find(|(known, _)| *known == case) {
            Some((_, uses)) => *uses += 1,
            None => self.0.push((case, 1)),
        }
    }

    fn conv(&mut self, n: usize, [ci, co]: [usize; 2], side: usize, kernel: usize) {
        self.add(Case::Conv(ConvShape { n, ci, co, h: side, w: side, kernel, stride: 1, padding: kernel / 2 }));
    }

    fn norm(&mut self, n: usize, c: usize, side: usize, modulated: bool, silu: bool) {
        let shape = NormShape { n, c, hw: side * side, groups: crate::nn::layers::groups(c) };
        self.add(Case::Norm { shape, modulated, silu });
    }

    /// Counts the kernels of one residual block, in the order of `nn::block`. `side` is that of its input; returns the
    /// side of its output.
    fn block(&mut self, plan: &BlockPlan, n: usize, side: usize, emb: usize) -> usize {
        let (cin, cout) = (plan.cin, plan.cout);
        self.norm(n, cin, side, false, true);
        let side = match plan.resample {
            Resample::Keep => side,
            Resample::Down => {
                // Twice: in the residual branch and in the shortcut.
                (0..2).for_each(|_| self.add(Case::Downsample { planes: n * cin, side }));
                side / 2
            }
            Resample::Up => {
                (0..2).for_each(|_| self.add(Case::Upsample { planes: n * cin, side: 2 * side }));
                2 * side
            }
        };
        let size = cout * side * side;
        self.conv(n, [cin, cout], side, 3);
        self.add(Case::Linear(LinearShape { n, cin: emb, cout: 2 * cout }));
        self.norm(n, cout, side, true, true);
        self.add(Case::Dropout { n, size });
        if cin != cout {
            self.conv(n, [cin, cout], side, 1);
        }
        self.conv(n, [cout, cout], side, 3);
        self.add(Case::Add(n * size));
        let heads = plan.heads();
        if heads > 0 {
            self.norm(n, cout, side, false, false);
            self.conv(n, [cout, 3 * cout], side, 1);
            self.add(Case::Attention(AttentionShape { n, heads, d: cout / heads, positions: side * side }));
            self.conv(n, [cout, cout], side, 1);
            self.add(Case::Add(n * size));
        }
        side
    }

    fn decoder(&mut self, config: &UNetConfig, n: usize, mut side: usize) {
        let plan = config.decoder_plan();
        let mut c = plan.first().map_or(0, |block| block.cin);
        self.conv(n, [c, c], side, 3);
        self.conv(n, [c, 1], side, 1);
        self.add(Case::Add(n * c * side * side));
        for block in &plan {
            if block.cin > c {
                let pixels = side * side;
                self.add(Case::Concat { n, sizes: [c * pixels, (block.cin - c) * pixels] });
            }
            side = self.block(block, n, side, 4 * config.width);
            c = block.cout;
        }
        let channels = config.channels * config.patch_area();
        if config.decoders == Decoders::Conv {
            self.norm(n, c, side, false, true);
            self.conv(n, [c, c], side, 3);
            self.add(Case::Silu(n * c * side * side));
            self.conv(n, [c, channels], side, 3);
        }
        self.norm(n, c, side, false, true);
        self.conv(n, [c, channels], side, 3);
    }
}

/// The kernels of one training step on `n` images, in the order of their first use. An evaluation calls the forward pass of
/// the same kernels, without dropout and without the update of the weights.
pub fn network_cases(config: &UNetConfig, n: usize) -> Counted {
    let mut cases = Counted::default();
    let (m, emb, mut side) = (config.width, 4 * config.width, config.side());
    for cin in [m, emb] {
        cases.add(Case::Linear(LinearShape { n, cin, cout: emb }));
        cases.add(Case::Silu(n * emb));
    }
    cases.conv(n, [config.channels * config.patch_area(), m * config.mult[0]], side, 3);
    for block in config.encoder_plan() {
        side = cases.block(&block, n, side, emb);
    }
    let decoders = if config.decoders == Decoders::Two { 2 } else { 1 };
    (0..decoders).for_each(|_| cases.decoder(config, n, side));
    let weights = config.parameter_count(NetworkPorts::default());
    [Case::SumSq(weights), Case::AdamW(weights), Case::Ema(weights)].into_iter().for_each(|case| cases.add(case));
    cases
}

/// Convolutions that the U-Net does not use but the kernels support: stride 2, 4x4 and 7x7.
pub fn other_cases(n: usize) -> Counted {
    let shapes = [[128, 128, 32, 3, 2, 1], [128, 128, 32, 4, 2, 1], [3, 64, 64, 7, 1, 3]];
    let conv = |[ci, co, side, kernel, stride, padding]: [usize; 6]| {
        (Case::Conv(ConvShape { n, ci, co, h: side, w: side, kernel, stride, padding }), 0)
    };
    Counted(shapes.map(conv).to_vec())
}
