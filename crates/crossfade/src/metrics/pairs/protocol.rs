//! Named protocols for comparing two images. Published values differ by decibels with these details, so a protocol
//! fixes all of them.
use super::ssim::Window;
use crate::error::{Error, Result};
use crate::metrics::Report;

/// Which channels of an image are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// All channels as they are.
    Rgb,
    /// The luma of BT.601, from 16 to 235; grey images as they are.
    Y,
}

impl Channel {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rgb => "rgb",
            Self::Y => "y",
        }
    }
}

/// How two images are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name, or `custom`.
    pub name: &'static str,
    /// Which channels are compared.
    pub channel: Channel,
    /// Pixels left out at every border.
    pub crop: usize,
    /// Whether floats are rounded to 8 bits first.
    pub quantise: bool,
    /// Whether the luma is rounded to an integer.
    pub round_luma: bool,
    /// The window of SSIM.
    pub window: Window,
}

impl Protocol {
    /// The names that [`Protocol::named`] accepts.
    pub const NAMES: [&str; 4] = ["adm", "basicsr", "sr-matlab", "skimage"];

    /// The protocol of that name; those of super-resolution leave out a border as wide as the scale factor.
    pub fn named(name: &str, crop: Option<usize>) -> Result<Self> {
        let adm = Self {
            name: "adm",
            channel: Channel::Rgb,
            crop: crop.unwrap_or(0),
            quantise: false,
            round_luma: false,
            window: Window::Gaussian,
        };
        // No default: a forgotten border changes the value by tenths of a decibel without any sign of it.
        let border = || {
            crop.ok_or_else(|| {
                Error::request(format!("protocol {name} leaves out a border: give --crop N, usually the scale factor"))
            })
        };
        let luma = |name, round_luma| -> Result<Self> {
            Ok(Self { name, channel: Channel::Y, crop: border()?, quantise: true, round_luma, ..adm.clone() })
        };
        match name {
            "adm" => Ok(adm.clone()),
            "basicsr" => luma("basicsr", false),
            "sr-matlab" => luma("sr-matlab", true),
            "skimage" => Ok(Self { name: "skimage", window: Window::Uniform, ..adm.clone() }),
            _ => {
                let known = Self::NAMES.join(", ");
                Err(Error::request(format!("unknown protocol {name:?}; known: {known}")))
            }
        }
    }

    /// Whether the protocol of that name is for super-resolution and needs the width of the border to leave out.
    pub(super) fn leaves_out_border(name: &str) -> bool {
        matches!(name, "basicsr" | "sr-matlab")
    }

    /// Adds the protocol to a report.
    pub(super) fn state(&self, report: Report) -> Report {
        let channel = match (self.channel, self.round_luma) {
            (Channel::Rgb, _) => "all of the picture's",
            (Channel::Y, false) => "y of BT.601 (16 to 235), not rounded",
            (Channel::Y, true) => "y of BT.601 (16 to 235), rounded",
        };
        let values = if self.quantise { "rounded to 8 bits" } else { "as they are" };
        report
            .with("protocol", self.name)
            .with("channel", channel)
            .with("border left out", self.crop)
            .with("values", values)
    }
}
