//! From a network's rows to a picture's: known pixels, grey, thresholds, alpha.
use super::Application;
use crate::data::Image;
use crate::data::image16::{Format, Image16, RowWriter};
use crate::task::TaskConfig;
use crate::task::masks::Mask;
use crate::tile::Rows;

/// How finished rows become pixels.
pub(super) struct Finish<'a> {
    input: &'a Image16,
    mask: Option<&'a Mask>,
    alpha: Option<Image>,
    threshold: Option<f64>,
    /// What white stands for in a depth map of 16 bits.
    most: Option<f64>,
    made: usize,
    format: Format,
}

impl<'a> Finish<'a> {
    pub fn new(application: &Application<'a>, input: &'a Image16, mask: Option<&'a Mask>, scale: usize) -> Self {
        let made = application.model.channels();
        // A picture comes back as it came: its bits, its alpha, grey if it was grey. A map is grey and has neither.
        let picture = made == 3 && !matches!(application.task, TaskConfig::Sketch(_));
        let alpha = if picture { input.alpha_times(scale) } else { None };
        let most = if let TaskConfig::Depth(depth) = application.task { Some(depth.most) } else { None };
        let format = Format {
            width: input.width * scale,
            height: input.height * scale,
            channels: if picture { input.channels } else { made },
            alpha: alpha.is_some(),
            deep: picture && input.deep || most.is_some(),
        };
        Self { input, mask, alpha, threshold: application.options.threshold, most, made, format }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes the rows that lie inside the picture.
    pub fn write(&self, rows: &Rows<'_>, out: &mut RowWriter<'_>) -> std::io::Result<()> {
        let width = self.format.width;
        let mut line = Vec::with_capacity(width * self.format.channels);
        for i in 0..rows.rows.min(self.format.height.saturating_sub(rows.y)) {
            let y = rows.y + i;
            line.clear();
            for x in 0..width {
                let at = |k: usize| rows.values[(k * rows.rows + i) * rows.width + x];
                match (self.made, self.format.channels) {
                    (3, 1) => line.push(0.299 * at(0) + 0.587 * at(1) + 0.114 * at(2)),
                    (made, _) => line.extend((0..made).map(at)),
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

    /// Known pixels come back exactly, maps are made black and white or scaled where asked.
    fn adjust(&self, y: usize, line: &mut [f32]) {
        let channels = self.format.channels;
        if let Some(mask) = self.mask {
            for (x, pixel) in line.chunks_exact_mut(channels).enumerate() {
                if mask.known[y * mask.width + x] {
                    pixel.iter_mut().enumerate().for_each(|(k, v)| *v = self.input.at(y, x, k));
                }
            }
        }
        if let Some(threshold) = self.threshold {
            let least = 2.0 * threshold as f32 - 1.0;
            line.iter_mut().for_each(|v| *v = if *v >= least { 1.0 } else { -1.0 });
        }
        if let Some(most) = self.most {
            let share = (most / 65535.0) as f32;
            line.iter_mut().for_each(|v| *v = (v.clamp(-1.0, 1.0) + 1.0) * share - 1.0);
        }
    }
}
