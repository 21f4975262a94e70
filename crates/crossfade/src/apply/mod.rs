//! Applies a trained task to pictures of any size: in windows that are padded, blended, and written row by row.
//!
//! The network is behind the trait [`Model`], so that tests can use operators whose result is known.
mod finish;
mod noise;

pub use noise::field;

use crate::data::Planes;
use crate::data::image16::{Format, Image16, Target, write_rows_to};
use crate::data::{Filter, Image, PassOrder, resize};
use crate::error::{Error, Result};
use crate::task::masks::Mask;
use crate::task::{Fitting, TaskConfig};
use crate::tile::{Plan, Window, run};
use finish::Finish;
use std::path::Path;

/// The input of the network for one window.
#[derive(Clone, Debug)]
pub struct Part {
    /// The condition.
    pub condition: Planes,
    /// Height and width of the output.
    pub size: [usize; 2],
    /// The row of the whole output at which this window's output starts. Noise is a function of the position in the whole
    /// output, so that overlapping windows get the same noise.
    pub y: usize,
    /// The column at which it starts.
    pub x: usize,
}

/// A network that makes outputs from conditions, such as `TaskModel` of `generate`.
pub trait Model {
    /// Channels of an output, 1 or 3.
    fn channels(&self) -> usize;
    /// The sides of an output must be multiples of this.
    fn unit(&self) -> usize;
    /// The outputs for parts of equal size, with values in [−1, 1]; they are larger than the input by the task's scale.
    /// `picture` is the index of the picture, which determines its noise.
    fn make(&self, picture: u64, parts: &[Part]) -> Result<Vec<Planes>>;
}

/// How the outputs of overlapping windows are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blending {
    /// Windows are spread evenly, and their overlaps are blended smoothly.
    Smooth {
        /// The least overlap of neighbouring windows, in pixels.
        overlap: usize,
    },
    /// As in the reference: a window every `stride` pixels, and the plain mean where they overlap.
    Reference {
        /// Pixels from one window to the next.
        stride: usize,
    },
}

/// Options of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Side of a window in pixels of the input; none for the training size, or, for tasks that resize the whole picture to
    /// the training size, for no windows at all.
    pub window: Option<usize>,
    /// How windows are blended; none for smooth blending with an overlap of a quarter of a window.
    pub blending: Option<Blending>,
    /// Windows per network evaluation.
    pub batch: usize,
    /// Whether to also process the mirrored picture and average both outputs.
    pub flip_test: bool,
    /// Makes a map black and white: values of at least this threshold, in [0, 1], become white.
    pub threshold: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { window: None, blending: None, batch: 1, flip_test: false, threshold: None }
    }
}

/// The result of an application.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Applied {
    /// Width of the output.
    pub width: usize,
    /// Height of the output.
    pub height: usize,
    /// The number of windows.
    pub windows: usize,
}

/// A task, its network and the options to apply it with.
pub struct Application<'a> {
    /// The task.
    pub task: &'a TaskConfig,
    /// The network.
    pub model: &'a dyn Model,
    /// The options.
    pub options: &'a Options,
    /// Keys and values for text chunks of the PNG.
    pub texts: &'a [(&'a str, &'a str)],
}

impl Application<'_> {
    /// Processes `input` and writes a PNG to the file `out`. `mask` is for inpainting, `picture` is the index that
    /// determines the noise, and `progress` is called with (windows done, all windows), first before any is done.
    pub fn run(
        &self,
        input: &Image16,
        mask: Option<&Mask>,
        picture: u64,
        out: &Path,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Applied> {
        self.run_to(input, mask, picture, Target::File(out), progress)
    }

    /// As [`Application::run`], to a file or to memory.
    pub fn run_to(
        &self,
        input: &Image16,
        mask: Option<&Mask>,
        picture: u64,
        out: Target<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Applied> {
        if let Some(mask) = mask
            && (mask.width, mask.height) != (input.width, input.height)
        {
            let (w, h) = (input.width, input.height);
            return Err(Error::request(format!(
                "the picture has {w}x{h} pixels, its mask {}x{}; they must be equal",
                mask.width, mask.height
            )));
        }
        match (self.task.task().fitting(), self.options.window, self.task.task().size()) {
            (Fitting::Resized, None, Some(size)) => self.whole(input, size, picture, out, progress),
            _ => self.windows(input, mask, picture, out, progress),
        }
    }

    /// Processes the picture at its own size, window by window.
    fn windows(
        &self,
        input: &Image16,
        mask: Option<&Mask>,
        picture: u64,
        out: Target<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Applied> {
        let scale = self.task.task().scale();
        let plan = self.plan(input)?;
        let all = plan.windows().len();
        let finish = Finish::new(self, input, mask, scale);
        let (mut done, name) = (0, out.name());
        progress(0, all);
        write_rows_to(out, finish.format(), self.texts, |rows| {
            let mut evaluate = |windows: &[Window]| {
                let outputs = self.outputs(input, mask, picture, windows)?;
                done += windows.len();
                progress(done, all);
                Ok(outputs)
            };
            let mut sink = |finished: crate::tile::Rows<'_>| finish.write(&finished, rows).map_err(Error::io(&name));
            run(&plan, self.model.channels(), self.options.batch, &mut evaluate, &mut sink)
        })?;
        let Format { width, height, .. } = finish.format();
        Ok(Applied { width, height, windows: all })
    }

    /// Places the windows. A picture smaller than a window is padded by reflection to sides that the network accepts.
    fn plan(&self, input: &Image16) -> Result<Plan> {
        let (task, scale) = (self.task.task(), self.task.task().scale());
        // In pixels of the input: outputs are `scale` times as large.
        let unit = self.model.unit().div_ceil(scale).max(1);
        let training_side = task.size().map_or(256, |size| size[0].min(size[1])) / scale;
        // By default windows have the training size, which the network handles best.
        let window = self.options.window.unwrap_or(training_side).max(1).next_multiple_of(unit);
        let padded = |side: usize| if side < window { side.next_multiple_of(unit) } else { side };
        let size = [padded(input.height), padded(input.width)];
        Ok(match self.options.blending {
            Some(Blending::Reference { stride }) if stride > window => {
                let problem = format!("windows of {window} pixels every {stride} leave gaps; choose a smaller stride");
                return Err(Error::request(problem));
            }
            Some(Blending::Reference { stride }) => Plan::reference(size, [window; 2], [stride; 2], scale),
            other => {
                let overlap = if let Some(Blending::Smooth { overlap }) = other { overlap } else { window / 4 };
                if overlap >= window {
                    let problem = format!("windows of {window} pixels cannot share {overlap}; choose less overlap");
                    return Err(Error::request(problem));
                }
                // A quarter of the overlap is discarded at each end, where outputs lack context.
                Plan::smooth(size, [window; 2], overlap, overlap / 4, scale)
            }
        })
    }

    fn outputs(&self, input: &Image16, mask: Option<&Mask>, picture: u64, windows: &[Window]) -> Result<Vec<Vec<f32>>> {
        // A window without a hole needs no network evaluation: its output is its input.
        let known = |w: &Window| mask.is_some_and(|mask| mask.cut(w.y, w.x, w.height, w.width).hole() == 0.0);
        let unknown = windows.iter().filter(|w| !known(w));
        let parts: Vec<Part> = unknown.map(|w| self.part(input, mask, w)).collect::<Result<_>>()?;
        let mut made = self.make(picture, parts)?.into_iter();
        let result = |w: &Window| match known(w) {
            true => input.cut(w.y, w.x, w.height, w.width).values,
            false => made.next().unwrap_or_default(),
        };
        Ok(windows.iter().map(result).collect())
    }

    /// The outputs of the model; with `flip_test` averaged with those of the mirrored input.
    fn make(&self, picture: u64, parts: Vec<Part>) -> Result<Vec<Vec<f32>>> {
        let run_model = |parts: &[Part]| -> Result<Vec<Planes>> {
            let outputs = self.model.make(picture, parts)?.into_iter().zip(parts);
            Ok(outputs.map(|(output, part)| self.task.task().output(output, &part.condition)).collect())
        };
        let mut outputs = run_model(&parts)?;
        if self.options.flip_test {
            // The noise is not mirrored, so that both outputs start from different noise and averaging reduces their
            // variance.
            let flip = |part: Part| Part { condition: part.condition.flipped(true), ..part };
            let mirrored = run_model(&parts.into_iter().map(flip).collect::<Vec<_>>())?;
            for (output, back) in outputs.iter_mut().zip(mirrored) {
                let back = back.flipped(true);
                output.values.iter_mut().zip(back.values).for_each(|(a, b)| *a = (*a + b) / 2.0);
            }
        }
        Ok(outputs.into_iter().map(|planes| planes.values).collect())
    }

    fn part(&self, input: &Image16, mask: Option<&Mask>, w: &Window) -> Result<Part> {
        let (task, scale) = (self.task.task(), self.task.task().scale());
        let seen = input.cut(w.y, w.x, w.height, w.width);
        let condition = match (self.task, mask) {
            (TaskConfig::Inpainting(task), Some(mask)) => task.masked(&seen, &mask.cut(w.y, w.x, w.height, w.width))?,
            (TaskConfig::Inpainting(_), None) => return Err(Error::request("inpainting needs a mask")),
            _ => task.condition(seen)?,
        };
        Ok(Part { condition, size: [w.height * scale, w.width * scale], y: w.y * scale, x: w.x * scale })
    }

    /// Processes the whole picture at the training size, and resizes the resulting map back to the size of the picture.
    fn whole(
        &self,
        input: &Image16,
        [height, width]: [usize; 2],
        picture: u64,
        out: Target<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Applied> {
        let bilinear = |image: &Image, w, h| resize(image, w, h, Filter::Bilinear, PassOrder::HorizontalFirst);
        let seen = bilinear(&input.to_image().with_channels(self.task.task().condition_channels()), width, height);
        let part = Part { condition: Planes::from_image(&seen), size: [height, width], y: 0, x: 0 };
        let made = self.make(picture, vec![part])?.pop().unwrap_or_default();
        let made = Planes::new([self.model.channels(), height, width], made).to_image();
        let full = Planes::from_image(&bilinear(&made, input.width, input.height));
        let (finish, name) = (Finish::new(self, input, None, 1), out.name());
        write_rows_to(out, finish.format(), self.texts, |rows| {
            let all = crate::tile::Rows { y: 0, rows: input.height, width: input.width, values: &full.values };
            finish.write(&all, rows).map_err(Error::io(&name))
        })?;
        progress(1, 1);
        Ok(Applied { width: input.width, height: input.height, windows: 1 })
    }
}
