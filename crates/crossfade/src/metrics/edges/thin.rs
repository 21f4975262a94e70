//! Morphological thinning, as MATLAB's `bwmorph(image, 'thin', inf)`.
//!
//! Lam, Lee and Suen, "Thinning methodologies", 1992, page 879, bottom of the first column to the second.
use super::super::maps::Mask;

/// For each of the 256 neighbourhoods, whether the pixel is deleted in the first and in the second half of an
/// iteration.
///
/// Bit i − 1 of a neighbourhood is x_i, counted from the east counterclockwise as in the paper.
const DELETED: [[bool; 256]; 2] = [table(false), table(true)];

const fn table(second: bool) -> [bool; 256] {
    let mut deleted = [false; 256];
    let mut code = 0;
    while code < 256 {
        deleted[code] = is_deleted(code, second);
        code += 1;
    }
    deleted
}

/// x_i of a neighbourhood, where x_9 is x_1.
const fn x(code: usize, i: usize) -> bool {
    (code >> ((i - 1) % 8)) & 1 == 1
}

/// The conditions G1 (exactly one crossing), G2 (2 or 3 neighbours) and G3 or G3' (which side may be removed) of the
/// paper.
const fn is_deleted(code: usize, second: bool) -> bool {
    let (mut crossings, mut n1, mut n2) = (0, 0, 0);
    let mut k = 1;
    while k <= 4 {
        crossings += (!x(code, 2 * k - 1) && (x(code, 2 * k) || x(code, 2 * k + 1))) as usize;
        n1 += (x(code, 2 * k - 1) || x(code, 2 * k)) as usize;
        n2 += (x(code, 2 * k) || x(code, 2 * k + 1)) as usize;
        k += 1;
    }
    let n = if n1 < n2 { n1 } else { n2 };
    let kept = if second {
        (x(code, 6) || x(code, 7) || !x(code, 4)) && x(code, 5)
    } else {
        (x(code, 2) || x(code, 3) || !x(code, 8)) && x(code, 1)
    };
    crossings == 1 && (n == 2 || n == 3) && !kept
}

/// Reduces thick lines to a width of one pixel.
pub fn thin(mask: &Mask) -> Mask {
    // A frame of empty pixels makes bounds checks of neighbours unnecessary.
    let stride = mask.width + 2;
    let mut framed = vec![false; stride * (mask.height + 2)];
    let mut set_pixels: Vec<usize> = Vec::new();
    for (i, _) in mask.bits.iter().enumerate().filter(|(_, bit)| **bit) {
        let at = (i / mask.width + 1) * stride + i % mask.width + 1;
        framed[at] = true;
        set_pixels.push(at);
    }
    loop {
        let before = set_pixels.len();
        for deleted in &DELETED {
            let deletable = |&at: &usize| deleted[neighbourhood(&framed, stride, at)];
            // All pixels of a half are decided before any is deleted, so that the result does not depend on their
            // order.
            let (out, stay): (Vec<usize>, Vec<usize>) = set_pixels.iter().partition(|at| deletable(at));
            out.into_iter().for_each(|at| framed[at] = false);
            set_pixels = stay;
        }
        if set_pixels.len() == before {
            break;
        }
    }
    let mut bits = vec![false; mask.bits.len()];
    set_pixels.into_iter().for_each(|at| bits[(at / stride - 1) * mask.width + at % stride - 1] = true);
    Mask { width: mask.width, height: mask.height, bits }
}

fn neighbourhood(framed: &[bool], stride: usize, at: usize) -> usize {
    let around =
        [at + 1, at - stride + 1, at - stride, at - stride - 1, at - 1, at + stride - 1, at + stride, at + stride + 1];
    around.iter().rev().fold(0, |code, &i| (code << 1) | usize::from(framed[i]))
}
