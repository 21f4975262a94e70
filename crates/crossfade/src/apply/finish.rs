//! Post-processing of finished rows before they are written: known pixels, greyscale, thresholds, alpha.
use super::Application;
use crate::data::Image;
use crate::data::image16::{Format, Image16, RowWriter};
use crate::task::TaskConfig;
use crate::task::masks::Mask;
use crate::tile::Rows;

/// Converts rows of network output to pixels of the written file.
pub(super) struct Finish<'a> {
    input: &'a Image16,
    mask: Option<&'a Mask>,
    alpha: Option<Image>,
    threshold: Option<f64>,
    /// The depth that white stands for in a 16-bit depth map.
    max_depth: Option<f64>,
    /// Channels of the network's output.
    output_channels: usize,
    format: Format,
}

impl<'a> Finish<'a> {
    pub fn new(application: &Application<'a>, input: &'a Image16, mask: Option<&'a Mask>, scale: usize) -> Self {
        let output_channels = application.model.channels();
        // A photo keeps the format of its input: bit depth, alpha channel, and greyscale if it was grey. A map (edges,
        // saliency, depth) is always greyscale and has no alpha. The
        // photo made from a grey sketch is in colour.
        let keeps_format = output_channels == 3 && !matches!(application.task, TaskConfig::Sketch(_));
        let alpha = if keeps_format { input.alpha_times(scale) } else { None };
        let max_depth = if let TaskConfig::Depth(depth) = application.task { Some(depth.most) } else { None };
        let format = Format {
            width: input.width * scale,
            height: input.height * scale,
            channels: if keeps_format { input.channels } else { output_channels },
            alpha: alpha.is_some(),
            deep: keeps_format && input.deep || max_depth.is_some(),
        };
        Self { input, mask, alpha, threshold: application.options.threshold, max_depth, output_channels, format }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes the rows that lie inside the picture; the padding below and to the right of it is dropped.
    pub fn write(&self, rows: &Rows<'_>, out: &mut RowWriter<'_>) -> std::io::Result<()> {
        let width = self.format.width;
        let mut line = Vec::with_capacity(width * self.format.channels);
        for i in 0..rows.rows.min(self.format.height.saturating_sub(rows.y)) {
            let y = rows.y + i;
            line.clear();
            for x in 0..width {
                let at = |k: usize| rows.values[(k * rows.rows + i) * rows.width + x];
                match (self.output_channels, self.format.channels) {
                    // The luma weights of ITU-R BT.601, as Pillow's `convert("L")`.
                    (3, 1) => line.push(0.299 * at(0) + 0.587 * at(1) + 0.114 * at(2)),
                    (channels, _) => line.extend((0..channels).map(at)),
                }
            }
            self.adjust(y, &mut line);
            let alpha = self.alpha.as_ref().map(|alpha| {
                alpha.pixels[y * width..(y + 1) * width].iter().map(|&v| f32::from(v) / 255.0).collect::<Vec<_>>()
            });
            out.row(&line, alpha.as_deref())?;
        }
        Ok(())
    }

    /// Restores known pixels exactly, and applies the threshold and the depth scale if there are any.
    fn adjust(&self, y: usize, line: &mut [f32]) {
        let channels = self.format.channels;
        if let Some(mask) = self.mask {
            for (x, pixel) in line.chunks_exact_mut(channels).enumerate() {
                // Copied from the input, because a network changes known pixels slightly.
                if mask.known[y * mask.width + x] {
                    pixel.iter_mut().enumerate().for_each(|(k, v)| *v = self.input.at(y, x, k));
                }
            }
        }
        if let Some(threshold) = self.threshold {
            // The option is in [0, 1], values are in [−1, 1].
            let least = 2.0 * threshold as f32 - 1.0;
            line.iter_mut().for_each(|v| *v = if *v >= least { 1.0 } else { -1.0 });
        }
        if let Some(max_depth) = self.max_depth {
            let scale = (max_depth / 65535.0) as f32;
            line.iter_mut().for_each(|v| *v = (v.clamp(-1.0, 1.0) + 1.0) * scale - 1.0);
        }
    }
}
