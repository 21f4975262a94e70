//! Layers of networks that only run forward, on channels-last images ([row][column]\[channel\]).
//!
//! In this order the window of an output pixel is one run of floats for each row of the kernel, several layers can write
//! their outputs side by side without a copy, and the zero padding is stored with the image. Bias and ReLU are applied
//! while a result is still in registers. The result for an image has the same bits in any batch. The layers run on the
//! calling thread, so that each thread can take images of its own.
mod direct;
mod pool;
mod winograd;

pub use pool::{average_pool, max_pool, mean};

use crate::product::PackedMatrix;
use crate::simd::Isa;
use crate::workspace::Workspace;

/// The number of output channels of a convolution is a multiple of this.
pub(crate) const GROUP: usize = 16;

/// The feature maps of some images of one size, with a border of zeros around each.
pub struct Map {
    images: usize,
    capacity: usize,
    /// Rows without the border.
    pub h: usize,
    /// Columns without the border.
    pub w: usize,
    /// Channels.
    pub c: usize,
    /// Rows of zeros above and below, columns of zeros left and right.
    pub border: [usize; 2],
    data: Workspace,
}

impl Map {
    /// Memory for `images` images, all zero.
    pub fn new(images: usize, [h, w, c]: [usize; 3], border: [usize; 2]) -> Self {
        let mut data = Workspace::take(images * (h + 2 * border[0]) * (w + 2 * border[1]) * c);
        data.fill(0.0);
        Self { images, capacity: images, h, w, c, border, data: data.detach() }
    }

    /// How many images there is memory for.
    pub fn room(&self) -> usize {
        self.capacity
    }

    /// How many images the functions of this module work on.
    pub fn images(&self) -> usize {
        self.images
    }

    /// Sets that number, which is at most [`Self::room`].
    pub fn set_images(&mut self, images: usize) {
        assert!(images <= self.capacity, "{images} images in a map with room for {}", self.capacity);
        self.images = images;
    }

    /// Floats from one row to the next.
    fn row(&self) -> usize {
        (self.w + 2 * self.border[1]) * self.c
    }

    /// Floats from one image to the next.
    fn image(&self) -> usize {
        (self.h + 2 * self.border[0]) * self.row()
    }

    /// The offset of pixel (y, x) of an image; pixels of the border have negative coordinates.
    fn at(&self, image: usize, y: isize, x: isize) -> usize {
        let (y, x) = (y + self.border[0] as isize, x + self.border[1] as isize);
        assert!(y >= 0 && x >= 0, "a pixel outside the border");
        image * self.image() + y as usize * self.row() + x as usize * self.c
    }

    /// Row `y` of an image, without the border.
    pub fn line(&self, image: usize, y: usize) -> &[f32] {
        let start = self.at(image, y as isize, 0);
        &self.data[start..start + self.w * self.c]
    }

    /// Row `y` of an image, without the border, to write.
    pub fn line_mut(&mut self, image: usize, y: usize) -> &mut [f32] {
        let (start, len) = (self.at(image, y as isize, 0), self.w * self.c);
        &mut self.data[start..start + len]
    }

    /// The destination of a layer's output that begins at an image and a channel of this map.
    pub fn from(&mut self, image: usize, channel: usize) -> Slot<'_> {
        Slot { map: self, image, channel }
    }
}

/// Where a layer writes its output: the images and channels of a map from the given ones on.
pub struct Slot<'a> {
    map: &'a mut Map,
    image: usize,
    channel: usize,
}

impl Slot<'_> {
    fn check(&self, images: usize, [h, w, c]: [usize; 3]) {
        let map = &self.map;
        assert!(
            [map.h, map.w] == [h, w],
            "a layer with an output of {h}x{w} cannot write to a map of {}x{}",
            map.h,
            map.w
        );
        assert!(
            self.channel + c <= map.c && self.image + images <= map.capacity,
            "the output of a layer exceeds the channels or images of its map"
        );
    }
}

/// The kernel of a convolution and how it moves over the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub kernel: [usize; 2],
    /// Distance of the windows of neighbouring outputs.
    pub stride: usize,
    /// Rows of zeros above and below, columns of zeros left and right.
    pub padding: [usize; 2],
}

impl Window {
    /// Height and width of the output for an image of `h` x `w`.
    pub fn output(&self, h: usize, w: usize) -> [usize; 2] {
        let side = |size: usize, i: usize| (size + 2 * self.padding[i] - self.kernel[i]) / self.stride + 1;
        [side(h, 0), side(w, 1)]
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }
}

/// The layer relu(x ∗ weight + bias), with packed weights.
pub struct Conv {
    isa: Isa,
    window: Window,
    ci: usize,
    co: usize,
    bias: Vec<f32>,
    method: Method,
}

enum Method {
    Direct(PackedMatrix),
    /// F(4x4, 3x3)
    Winograd3(Workspace),
    /// F(2x2, 5x5)
    Winograd5(Workspace),
}

impl Conv {
    /// Packs the weights for images of about `side` rows.
    ///
    /// # Shapes
    /// `weight` [co, ci, kernel], `bias` \[co\]; co a multiple of 16.
    pub fn new(weight: &[f32], bias: &[f32], ci: usize, window: Window, side: usize) -> Self {
        Self::with(Isa::detect(), weight, bias, ci, window, side)
    }

    fn with(isa: Isa, weight: &[f32], bias: &[f32], ci: usize, window: Window, side: usize) -> Self {
        let co = bias.len();
        assert!(
            co > 0 && co.is_multiple_of(GROUP),
            "the number of output channels must be a multiple of {GROUP}, not {co}"
        );
        assert_eq!(weight.len(), co * ci * window.taps(), "weights of {window:?} from {ci} to {co} channels");
        assert!(window.stride > 0 && (0..2).all(|i| window.padding[i] < window.kernel[i]), "{window:?}");
        // Transformed weights are larger; small images have too few tiles to make up for reading them.
        let tiled = window.stride == 1 && ci.is_multiple_of(GROUP) && side >= 16;
        let method = match window.kernel {
            [3, 3] if tiled => Method::Winograd3(winograd::filters::<3>(isa, weight, ci, co)),
            [5, 5] if tiled => Method::Winograd5(winograd::filters::<5>(isa, weight, ci, co)),
            _ => Method::Direct(direct::filters(isa, weight, ci, co, window.taps())),
        };
        Self { isa, window, ci, co, bias: bias.to_vec(), method }
    }

    /// Rows, columns and channels of the output for the input `x`.
    pub fn output(&self, x: &Map) -> [usize; 3] {
        let [h, w] = self.window.output(x.h, x.w);
        [h, w, self.co]
    }

    /// Computes all images of `x`, whose border must hold the padding.
    pub fn forward(&self, x: &Map, out: Slot) {
        let [oh, ow] = self.window.output(x.h, x.w);
        out.check(x.images, [oh, ow, self.co]);
        assert_eq!(x.c, self.ci, "the input has another number of channels than the weights");
        assert!((0..2).all(|i| x.border[i] >= self.window.padding[i]), "the border must hold the padding");
        match &self.method {
            Method::Direct(filters) => self.isa.run(direct::Direct { conv: self, filters, x, out }),
            Method::Winograd3(filters) => self.isa.run(winograd::Winograd::<4> { conv: self, filters, x, out }),
            Method::Winograd5(filters) => self.isa.run(winograd::Winograd::<2> { conv: self, filters, x, out }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers};

    /// One image by the formula, in f64.
    fn exact(x: &Map, image: usize, weight: &[f32], bias: &[f32], window: Window) -> Vec<f64> {
        let ([oh, ow], [kh, kw]) = (window.output(x.h, x.w), window.kernel);
        let mut y = vec![];
        for (oy, ox, o) in (0..oh).flat_map(|y| (0..ow).flat_map(move |x| (0..bias.len()).map(move |o| (y, x, o)))) {
            let mut sum = f64::from(bias[o]);
            for (i, ky, kx) in (0..x.c).flat_map(|i| (0..kh).flat_map(move |y| (0..kw).map(move |x| (i, y, x)))) {
                let row = (oy * window.stride + ky).checked_sub(window.padding[0]).filter(|&r| r < x.h);
                let col = (ox * window.stride + kx).checked_sub(window.padding[1]).filter(|&c| c < x.w);
                if let (Some(row), Some(col)) = (row, col) {
                    let w = weight[((o * x.c + i) * kh + ky) * kw + kx];
                    sum += f64::from(x.line(image, row)[col * x.c + i]) * f64::from(w);
                }
            }
            y.push(sum.max(0.0));
        }
        y
    }

    pub(super) fn filled(images: usize, size: [usize; 3], border: [usize; 2]) -> Map {
        let mut map = Map::new(images, size, border);
        for (image, y) in (0..images).flat_map(|i| (0..size[0]).map(move |y| (i, y))) {
            let values = numbers((100 * image + y) as u64, size[1] * size[2]);
            map.line_mut(image, y).copy_from_slice(&values);
        }
        map
    }

    fn pixels(map: &Map, image: usize, channels: std::ops::Range<usize>) -> Vec<f32> {
        (0..map.h)
            .flat_map(|y| map.line(image, y).chunks_exact(map.c).flat_map(|p| p[channels.clone()].to_vec()))
            .collect()
    }

    const WINDOWS: [(Window, usize, usize, [usize; 2]); 10] = {
        const fn case(k: [usize; 2], stride: usize, p: [usize; 2]) -> Window {
            Window { kernel: k, stride, padding: p }
        }
        [
            (case([3, 3], 2, [0, 0]), 3, 32, [19, 21]),
            (case([3, 3], 1, [0, 0]), 32, 48, [19, 22]),
            (case([3, 3], 1, [1, 1]), 16, 80, [17, 35]),
            (case([5, 5], 1, [2, 2]), 48, 64, [17, 18]),
            (case([1, 1], 1, [0, 0]), 40, 112, [5, 9]),
            (case([1, 7], 1, [0, 3]), 16, 32, [17, 17]),
            (case([7, 1], 1, [3, 0]), 16, 16, [17, 17]),
            (case([1, 3], 1, [0, 1]), 24, 16, [8, 8]),
            (case([3, 1], 1, [1, 0]), 24, 16, [8, 8]),
            (case([3, 3], 1, [1, 1]), 32, 16, [8, 8]),
        ]
    };

    #[test]
    fn every_window_agrees_with_f64() {
        for (window, ci, co, [h, w]) in WINDOWS {
            // Two images with a border wider than the padding, and an output in the middle of a larger map.
            let x = filled(2, [h, w, ci], [window.padding[0] + 1, window.padding[1]]);
            let weight = numbers(5, co * ci * window.taps());
            let bias = numbers(6, co);
            let [oh, ow] = window.output(h, w);
            for isa in Isa::available() {
                let conv = Conv::with(isa, &weight, &bias, ci, window, h);
                let mut out = Map::new(3, [oh, ow, co + 32], [0, 2]);
                conv.forward(&x, out.from(1, 16));
                for image in 0..2 {
                    let y = exact(&x, image, &weight, &bias, window);
                    let name = format!("{isa:?} {window:?}");
                    assert_close(&pixels(&out, image + 1, 16..16 + co), &y, 2e-5, &name);
                    assert!(
                        pixels(&out, image + 1, 0..16).iter().all(|&v| v == 0.0),
                        "{name} wrote outside its channels"
                    );
                }
                let sum: f32 = out.data.iter().map(|v| v.abs()).sum();
                let inside: f32 = (1..3).flat_map(|i| pixels(&out, i, 16..16 + co)).map(|v| v.abs()).sum();
                assert!((sum - inside).abs() <= 1e-4 * sum, "{isa:?} {window:?} wrote into the border");
            }
        }
    }

    #[test]
    fn an_image_has_the_same_bits_in_any_batch() {
        for (window, ci, co, [h, w]) in WINDOWS {
            let mut x = filled(5, [h, w, ci], window.padding);
            let conv = Conv::new(&numbers(5, co * ci * window.taps()), &numbers(6, co), ci, window, h);
            let [oh, ow] = window.output(h, w);
            let mut all = Map::new(5, [oh, ow, co], [0, 0]);
            conv.forward(&x, all.from(0, 0));
            let last: Vec<f32> = (0..h).flat_map(|y| x.line(4, y).to_vec()).collect();
            for (y, line) in last.chunks_exact(w * ci).enumerate() {
                x.line_mut(0, y).copy_from_slice(line);
            }
            x.set_images(1);
            let mut one = Map::new(1, [oh, ow, co], [0, 0]);
            conv.forward(&x, one.from(0, 0));
            assert!(pixels(&one, 0, 0..co) == pixels(&all, 4, 0..co), "{window:?}");
        }
    }
}
