//! Morphological thinning, as MATLAB's `bwmorph(image, 'thin', inf)`.
//!
//! Lam, Lee and Suen, "Thinning methodologies", 1992, page 879, bottom of the first column to the second.
use super::super::maps::Mask;

/// For each neighbourhood whether the pixel goes, in the first and in the second half of an iteration.
///
/// Bit i - 1 of a neighbourhood is x_i: from the east counterclockwise.
const DELETED: [[bool; 256]; 2] = [table(false), table(true)];

const fn table(second: bool) -> [bool; 256] {
    let mut deleted = [false; 256];
    let mut code = 0;
    while code < 256 {
        deleted[code] = goes(code, second);
        code += 1;
    }
    deleted
}

/// x_i of a neighbourhood, where x_9 is x_1.
const fn x(code: usize, i: usize) -> bool {
    (code >> ((i - 1) % 8)) & 1 == 1
}

const fn goes(code: usize, second: bool) -> bool {
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

/// Lines of one pixel's width instead of thick ones.
pub fn thin(mask: &Mask) -> Mask {
    // A frame of empty pixels saves the question whether a neighbour exists.
    let stride = mask.width + 2;
    let mut framed = vec![false; stride * (mask.height + 2)];
    let mut left: Vec<usize> = Vec::new();
    for (i, _) in mask.bits.iter().enumerate().filter(|(_, bit)| **bit) {
        let at = (i / mask.width + 1) * stride + i % mask.width + 1;
        framed[at] = true;
        left.push(at);
    }
    loop {
        let before = left.len();
        for deleted in &DELETED {
            let gone = |&at: &usize| deleted[neighbourhood(&framed, stride, at)];
            let (out, stay): (Vec<usize>, Vec<usize>) = left.iter().partition(|at| gone(at));
            out.into_iter().for_each(|at| framed[at] = false);
            left = stay;
        }
        if left.len() == before {
            break;
        }
    }
    let mut bits = vec![false; mask.bits.len()];
    left.into_iter().for_each(|at| bits[(at / stride - 1) * mask.width + at % stride - 1] = true);
    Mask { width: mask.width, height: mask.height, bits }
}

fn neighbourhood(framed: &[bool], stride: usize, at: usize) -> usize {
    let around =
        [at + 1, at - stride + 1, at - stride, at - stride - 1, at - 1, at + stride - 1, at + stride, at + stride + 1];
    around.iter().rev().fold(0, |code, &i| (code << 1) | usize::from(framed[i]))
}
