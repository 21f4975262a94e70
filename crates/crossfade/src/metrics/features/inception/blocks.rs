//! The five kinds of Inception blocks. Each writes the outputs of its branches to different channels of one feature
//! map, so that no concatenation is needed.
use super::weights::Reader;
use crate::error::Result;
use crossfade_kernels::channels_last::{Conv, Map, Window, average_pool, max_pool};

pub(super) const ONE: Window = Window { kernel: [1, 1], stride: 1, padding: [0, 0] };
pub(super) const THREE: Window = Window { kernel: [3, 3], stride: 1, padding: [1, 1] };
const FIVE: Window = Window { kernel: [5, 5], stride: 1, padding: [2, 2] };
const STRIDE2: Window = Window { kernel: [3, 3], stride: 2, padding: [0, 0] };
const ROW7: Window = Window { kernel: [1, 7], stride: 1, padding: [0, 3] };
const COLUMN7: Window = Window { kernel: [7, 1], stride: 1, padding: [3, 0] };
const ROW3: Window = Window { kernel: [1, 3], stride: 1, padding: [0, 1] };
const COLUMN3: Window = Window { kernel: [3, 1], stride: 1, padding: [1, 0] };

/// A pool of feature maps. A returned map is reused for the same size and border; its zero padding is still in place.
#[derive(Default)]
pub(super) struct Arena(Vec<Map>);

impl Arena {
    /// A feature map for up to `room` images, of which `images` are used.
    pub(super) fn take(&mut self, room: usize, images: usize, size: [usize; 3], border: [usize; 2]) -> Map {
        let fits = |m: &Map| m.room() == room && [m.h, m.w, m.c] == size && m.border == border;
        let mut map = match self.0.iter().position(fits) {
            Some(i) => self.0.swap_remove(i),
            None => Map::new(room, size, border),
        };
        // The last group of a set may be smaller than the others.
        map.set_images(images);
        map
    }

    pub(super) fn give_back(&mut self, map: Map) {
        self.0.push(map);
    }

    /// A feature map for the same number of images as `x`.
    fn like(&mut self, x: &Map, size: [usize; 3], border: [usize; 2]) -> Map {
        self.take(x.room(), x.images(), size, border)
    }

    /// The output of a layer, with padding for the next layer; `x` is returned to the pool.
    pub(super) fn conv(&mut self, conv: &Conv, x: Map, border: [usize; 2]) -> Map {
        let out = self.first(conv, &x, border);
        self.give_back(x);
        out
    }

    /// The output of a layer whose input is still needed by other branches.
    fn first(&mut self, conv: &Conv, x: &Map, border: [usize; 2]) -> Map {
        let mut out = self.like(x, conv.output(x), border);
        conv.forward(x, out.from(0, 0));
        out
    }

    /// Writes the last layer of a branch to the block's output from channel `at` on; returns the next free channel.
    fn last(&mut self, conv: &Conv, x: Map, out: &mut Map, at: usize) -> usize {
        let channels = conv.output(&x)[2];
        conv.forward(&x, out.from(0, at));
        self.give_back(x);
        at + channels
    }
}

/// A block of parallel branches.
pub(super) trait Mixed: Send + Sync {
    fn forward(&self, x: &Map, arena: &mut Arena) -> Map;
}

/// Pooling and a 1x1 convolution, the last branch of most blocks; max pooling if `largest` is set, else average
/// pooling.
fn pooled(conv: &Conv, x: &Map, largest: bool, arena: &mut Arena, out: &mut Map, at: usize) {
    let mut pool = arena.like(x, [x.h, x.w, x.c], [0, 0]);
    if largest {
        max_pool(x, THREE, pool.from(0, 0));
    } else {
        average_pool(x, THREE, pool.from(0, 0));
    }
    arena.last(conv, pool, out, at);
}

/// Block at 35x35 with the branches 1x1, 5x5, two 3x3, and pooling.
pub(super) struct BlockA {
    one: Conv,
    five: [Conv; 2],
    three: [Conv; 3],
    pool: Conv,
    channels: usize,
}

impl BlockA {
    pub(super) fn load(reader: &mut Reader, name: &str, ci: usize, pool: usize) -> Result<Self> {
        let mut conv = |part: &str, ci, co, window| reader.conv(&format!("{name}.{part}"), ci, co, window, 35);
        Ok(Self {
            one: conv("branch1x1", ci, 64, ONE)?,
            five: [conv("branch5x5_1", ci, 48, ONE)?, conv("branch5x5_2", 48, 64, FIVE)?],
            three: [
                conv("branch3x3dbl_1", ci, 64, ONE)?,
                conv("branch3x3dbl_2", 64, 96, THREE)?,
                conv("branch3x3dbl_3", 96, 96, THREE)?,
            ],
            pool: conv("branch_pool", ci, pool, ONE)?,
            channels: 224 + pool,
        })
    }
}

impl Mixed for BlockA {
    fn forward(&self, x: &Map, arena: &mut Arena) -> Map {
        let mut out = arena.like(x, [x.h, x.w, self.channels], [0, 0]);
        self.one.forward(x, out.from(0, 0));
        let five = arena.first(&self.five[0], x, [2, 2]);
        let at = arena.last(&self.five[1], five, &mut out, 64);
        let three = arena.first(&self.three[0], x, [1, 1]);
        let three = arena.conv(&self.three[1], three, [1, 1]);
        let at = arena.last(&self.three[2], three, &mut out, at);
        pooled(&self.pool, x, false, arena, &mut out, at);
        out
    }
}

/// Block that reduces 35x35 to 17x17.
pub(super) struct BlockB {
    three: Conv,
    deep: [Conv; 3],
}

impl BlockB {
    pub(super) fn load(reader: &mut Reader, name: &str, ci: usize) -> Result<Self> {
        let mut conv = |part: &str, ci, co, window| reader.conv(&format!("{name}.{part}"), ci, co, window, 35);
        Ok(Self {
            three: conv("branch3x3", ci, 384, STRIDE2)?,
            deep: [
                conv("branch3x3dbl_1", ci, 64, ONE)?,
                conv("branch3x3dbl_2", 64, 96, THREE)?,
                conv("branch3x3dbl_3", 96, 96, STRIDE2)?,
            ],
        })
    }
}

impl Mixed for BlockB {
    fn forward(&self, x: &Map, arena: &mut Arena) -> Map {
        let mut out = arena.like(x, [17, 17, 480 + x.c], [0, 0]);
        self.three.forward(x, out.from(0, 0));
        let deep = arena.first(&self.deep[0], x, [1, 1]);
        let deep = arena.conv(&self.deep[1], deep, [0, 0]);
        let at = arena.last(&self.deep[2], deep, &mut out, 384);
        max_pool(x, STRIDE2, out.from(0, at));
        out
    }
}

/// Block at 17x17 with the branches 1x1, 7x7 (as 1x7 and 7x1), two such pairs, and pooling.
pub(super) struct BlockC {
    one: Conv,
    seven: [Conv; 3],
    deep: [Conv; 5],
    pool: Conv,
}

impl BlockC {
    pub(super) fn load(reader: &mut Reader, name: &str, c7: usize) -> Result<Self> {
        let mut conv = |part: &str, ci, co, window| reader.conv(&format!("{name}.{part}"), ci, co, window, 17);
        Ok(Self {
            one: conv("branch1x1", 768, 192, ONE)?,
            seven: [
                conv("branch7x7_1", 768, c7, ONE)?,
                conv("branch7x7_2", c7, c7, ROW7)?,
                conv("branch7x7_3", c7, 192, COLUMN7)?,
            ],
            deep: [
                conv("branch7x7dbl_1", 768, c7, ONE)?,
                conv("branch7x7dbl_2", c7, c7, COLUMN7)?,
                conv("branch7x7dbl_3", c7, c7, ROW7)?,
                conv("branch7x7dbl_4", c7, c7, COLUMN7)?,
                conv("branch7x7dbl_5", c7, 192, ROW7)?,
            ],
            pool: conv("branch_pool", 768, 192, ONE)?,
        })
    }
}

impl Mixed for BlockC {
    fn forward(&self, x: &Map, arena: &mut Arena) -> Map {
        let mut out = arena.like(x, [x.h, x.w, 768], [0, 0]);
        self.one.forward(x, out.from(0, 0));
        let seven = arena.first(&self.seven[0], x, [0, 3]);
        let seven = arena.conv(&self.seven[1], seven, [3, 0]);
        let at = arena.last(&self.seven[2], seven, &mut out, 192);
        let mut deep = arena.first(&self.deep[0], x, [3, 0]);
        for (conv, border) in self.deep[1..4].iter().zip([[0, 3], [3, 0], [0, 3]]) {
            deep = arena.conv(conv, deep, border);
        }
        let at = arena.last(&self.deep[4], deep, &mut out, at);
        pooled(&self.pool, x, false, arena, &mut out, at);
        out
    }
}

/// Block that reduces 17x17 to 8x8.
pub(super) struct BlockD {
    three: [Conv; 2],
    seven: [Conv; 4],
}

impl BlockD {
    pub(super) fn load(reader: &mut Reader, name: &str) -> Result<Self> {
        let mut conv = |part: &str, ci, co, window| reader.conv(&format!("{name}.{part}"), ci, co, window, 17);
        Ok(Self {
            three: [conv("branch3x3_1", 768, 192, ONE)?, conv("branch3x3_2", 192, 320, STRIDE2)?],
            seven: [
                conv("branch7x7x3_1", 768, 192, ONE)?,
                conv("branch7x7x3_2", 192, 192, ROW7)?,
                conv("branch7x7x3_3", 192, 192, COLUMN7)?,
                conv("branch7x7x3_4", 192, 192, STRIDE2)?,
            ],
        })
    }
}

impl Mixed for BlockD {
    fn forward(&self, x: &Map, arena: &mut Arena) -> Map {
        let mut out = arena.like(x, [8, 8, 1280], [0, 0]);
        let three = arena.first(&self.three[0], x, [0, 0]);
        let at = arena.last(&self.three[1], three, &mut out, 0);
        let seven = arena.first(&self.seven[0], x, [0, 3]);
        let seven = arena.conv(&self.seven[1], seven, [3, 0]);
        let seven = arena.conv(&self.seven[2], seven, [0, 0]);
        let at = arena.last(&self.seven[3], seven, &mut out, at);
        max_pool(x, STRIDE2, out.from(0, at));
        out
    }
}

/// Block at 8x8 with the branches 1x1, 1x3 beside 3x1, the same after a 3x3, and pooling.
pub(super) struct BlockE {
    one: Conv,
    three: [Conv; 3],
    deep: [Conv; 4],
    pool: Conv,
    largest: bool,
}

impl BlockE {
    /// `largest` selects max pooling, as in the last block, instead of average pooling.
    pub(super) fn load(reader: &mut Reader, name: &str, ci: usize, largest: bool) -> Result<Self> {
        let mut conv = |part: &str, ci, co, window| reader.conv(&format!("{name}.{part}"), ci, co, window, 8);
        Ok(Self {
            one: conv("branch1x1", ci, 320, ONE)?,
            three: [
                conv("branch3x3_1", ci, 384, ONE)?,
                conv("branch3x3_2a", 384, 384, ROW3)?,
                conv("branch3x3_2b", 384, 384, COLUMN3)?,
            ],
            deep: [
                conv("branch3x3dbl_1", ci, 448, ONE)?,
                conv("branch3x3dbl_2", 448, 384, THREE)?,
                conv("branch3x3dbl_3a", 384, 384, ROW3)?,
                conv("branch3x3dbl_3b", 384, 384, COLUMN3)?,
            ],
            pool: conv("branch_pool", ci, 192, ONE)?,
            largest,
        })
    }
}

impl Mixed for BlockE {
    fn forward(&self, x: &Map, arena: &mut Arena) -> Map {
        let mut out = arena.like(x, [x.h, x.w, super::FEATURES], [0, 0]);
        self.one.forward(x, out.from(0, 0));
        let three = arena.first(&self.three[0], x, [1, 1]);
        self.three[1].forward(&three, out.from(0, 320));
        let at = arena.last(&self.three[2], three, &mut out, 704);
        let deep = arena.first(&self.deep[0], x, [1, 1]);
        let deep = arena.conv(&self.deep[1], deep, [1, 1]);
        self.deep[2].forward(&deep, out.from(0, at));
        let at = arena.last(&self.deep[3], deep, &mut out, at + 384);
        pooled(&self.pool, x, self.largest, arena, &mut out, at);
        out
    }
}
