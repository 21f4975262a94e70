//! The picture that the demonstration applies tasks to, drawn by formulas: a balloon over a lake in the mountains at dusk.
use crossfade::data::Image;

type Colour = [f64; 3];

/// Samples along each side of a pixel, whose mean is the pixel.
const OVERSAMPLING: usize = 3;
/// Where the lake begins; the picture is 4/3 wide and 1 high, with y downwards.
const SHORE: f64 = 0.64;
const SUN: [f64; 2] = [0.42, 0.585];

/// The scene at any size; its shape is best at 4:3.
pub fn scene(width: usize, height: usize) -> Image {
    let mut pixels = Vec::with_capacity(width * height * 3);
    for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
        let mut sum = [0.0; 3];
        for k in 0..OVERSAMPLING * OVERSAMPLING {
            let part = |k: usize| (k as f64 + 0.5) / OVERSAMPLING as f64;
            let y = (row as f64 + part(k / OVERSAMPLING)) / height as f64;
            let x = (column as f64 + part(k % OVERSAMPLING)) / width as f64 * 4.0 / 3.0;
            let colour = colour(x, y);
            sum = [0, 1, 2].map(|c| sum[c] + colour[c]);
        }
        let mean = 255.0 / (OVERSAMPLING * OVERSAMPLING) as f64;
        pixels.extend(sum.map(|value| (value * mean).round().clamp(0.0, 255.0) as u8));
    }
    Image::new(width, height, 3, pixels)
}

fn rgb(hex: u32) -> Colour {
    [16, 8, 0].map(|shift| f64::from(hex >> shift & 255) / 255.0)
}

fn mix(a: Colour, b: Colour, share: f64) -> Colour {
    let share = share.clamp(0.0, 1.0);
    [0, 1, 2].map(|c| a[c] + (b[c] - a[c]) * share)
}

fn scaled(a: Colour, factor: f64) -> Colour {
    a.map(|value| value * factor)
}

/// 0 below `from`, 1 above `to`, smooth between them.
fn smooth(from: f64, to: f64, x: f64) -> f64 {
    let t = ((x - from) / (to - from)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// A number from 0 to 1 for every point of a lattice.
fn lattice(x: i64, y: i64) -> f64 {
    let mut h = (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (y as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    h = (h ^ (h >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (h >> 40) as f64 / (1u64 << 24) as f64
}

/// Smooth noise from 0 to 1 with details of size 1, 1/2, 1/4 and so on.
fn noise(x: f64, y: f64, details: u32) -> f64 {
    let (mut sum, mut weight, mut scale) = (0.0, 0.5, 1.0);
    for k in 0..details {
        let (u, v) = (x * scale + 17.0 * f64::from(k), y * scale);
        let (i, j) = (u.floor(), v.floor());
        let (s, t) = (smooth(0.0, 1.0, u - i), smooth(0.0, 1.0, v - j));
        let at = |a: i64, b: i64| lattice(i as i64 + a, j as i64 + b);
        let (top, bottom) = (at(0, 0) + (at(1, 0) - at(0, 0)) * s, at(0, 1) + (at(1, 1) - at(0, 1)) * s);
        sum += weight * (top + (bottom - top) * t);
        (weight, scale) = (weight * 0.5, scale * 2.0);
    }
    sum
}

fn colour(x: f64, y: f64) -> Colour {
    let mut seen = if y < SHORE { above(x, y) } else { lake(x, y) };
    seen = boat(x, y, seen);
    seen = balloon(x - 0.965, y - 0.27, seen);
    foreground(x, y, seen)
}

/// The sky with the sun and thin clouds.
fn sky(x: f64, y: f64) -> Colour {
    let high = mix(rgb(0x2c4f86), rgb(0x86a3c4), smooth(0.0, 0.36, y));
    let low = mix(high, rgb(0xf6c79b), smooth(0.22, 0.58, y));
    let distance = ((x - SUN[0]).powi(2) + (1.25 * (y - SUN[1])).powi(2)).sqrt();
    let glow = mix(low, rgb(0xffe3b0), 0.85 * (-distance * 5.0).exp());
    let clouds = smooth(0.47, 0.72, noise(x * 2.6 + 3.0, y * 11.0, 5)) * smooth(0.02, 0.2, y) * smooth(0.56, 0.3, y);
    let lit = mix(rgb(0xf3ead9), rgb(0xffb98a), smooth(0.15, 0.45, y));
    mix(mix(glow, lit, 0.65 * clouds), rgb(0xfff6dc), smooth(0.052, 0.046, distance))
}

/// Sky and mountains: three ridges, paler with their distance.
fn above(x: f64, y: f64) -> Colour {
    let mut seen = sky(x, y);
    let ridges =
        [(0.30, 0.30, 1.9, 0.0, 0x8295b5u32), (0.44, 0.22, 2.7, 40.0, 0x566f8d), (0.55, 0.13, 4.2, 90.0, 0x36515f)];
    for (k, (top, rise, frequency, seed, base)) in ridges.into_iter().enumerate() {
        let ridge = |x: f64| top + rise * (1.0 - noise(x * frequency + seed, seed, 6) * 1.25);
        let depth = y - ridge(x);
        if depth < 0.0 {
            continue;
        }
        // Slopes towards the sun are lighter; folds run down from the ridge.
        let slope = (ridge(x + 0.012) - ridge(x - 0.012)) / 0.024;
        let folds = noise(x * 14.0 + depth * 9.0 + seed, depth * 7.0, 4) - 0.47;
        let towards = slope * ((x - SUN[0]) / 0.15).tanh();
        let light = 1.0 - 0.22 * towards.clamp(-1.0, 1.0) + 0.5 * folds;
        let mut rock = scaled(rgb(base), light.clamp(0.55, 1.5));
        if k == 0 {
            let snow = smooth(0.13, 0.02, depth + 0.2 * folds) * smooth(0.50, 0.38, ridge(x));
            rock = mix(rock, scaled(rgb(0xf4ecec), (0.8 + 0.25 * light).min(1.05)), 0.9 * snow);
        }
        // Haze gathers at the foot of each ridge.
        seen = mix(rock, rgb(0xe9bfa0), 0.62 * smooth(0.0, SHORE - top, depth) * (1.0 - 0.25 * k as f64));
    }
    seen
}

/// The lake mirrors what is above it, in ripples that grow towards the viewer.
fn lake(x: f64, y: f64) -> Colour {
    let depth = y - SHORE;
    let wave = noise(x * (9.0 - 12.0 * depth), depth * 70.0 / (0.3 + depth), 3) - 0.44;
    let mirrored =
        above(x + 0.02 * wave, (SHORE - 1.15 * depth + 0.11 * wave * (0.2 + depth)).clamp(0.0, SHORE - 0.003));
    let water = mix(scaled(mirrored, 0.9), rgb(0x1d3a55), 0.16 + 0.9 * depth);
    let path = (-((x - SUN[0]) / (0.03 + 0.25 * depth)).powi(2)).exp() * smooth(0.02, 0.22, wave + 0.06);
    mix(mix(water, rgb(0xffdca6), 0.8 * path), rgb(0xf4d6b4), 0.5 * smooth(0.006, 0.0, depth))
}

/// A sailing boat and its reflection.
fn boat(x: f64, y: f64, behind: Colour) -> Colour {
    let (u, line) = ((x - 0.70) / 0.075, 0.735);
    let (v, mirrored) = if y < line { ((line - y) / 0.075, false) } else { ((y - line) / 0.06, true) };
    let u = if mirrored { u + 0.08 * (noise(x * 30.0, y * 120.0, 2) - 0.4) } else { u };
    let hull = v < 0.16 && u.abs() < 0.62 + 0.7 * v && !(mirrored && v > 0.14);
    let main = v > 0.2 && v < 1.75 && u > 0.03 && u < 0.03 + 0.62 * (1.0 - (v - 0.2) / 1.55).powf(0.8);
    let jib = v > 0.2 && v < 1.4 && u < -0.03 && u > -0.03 - 0.42 * (1.0 - (v - 0.2) / 1.2).powf(0.9);
    let painted = match (hull, main, jib) {
        (true, ..) => scaled(rgb(0x7a3b2e), 0.8 + 1.6 * v),
        (_, true, _) => mix(rgb(0xfff3e2), rgb(0xe7c1a0), 1.3 * u),
        (.., true) => mix(rgb(0xf3ddc6), rgb(0xcf9f86), -1.6 * u),
        _ => return behind,
    };
    mix(behind, painted, if mirrored { 0.42 * smooth(1.7, 0.1, v) } else { 1.0 })
}

/// A balloon with shaded gores, ropes and a basket, around its centre.
fn balloon(x: f64, y: f64, behind: Colour) -> Colour {
    let radius = 0.178;
    // A sphere above, drawn out to the mouth below.
    let (bottom, mouth) = (radius * 1.42, radius * 0.20);
    let half = if y < 0.0 {
        (radius * radius - y * y).max(0.0).sqrt()
    } else {
        mouth + (radius - mouth) * (1.0 - (y / bottom).clamp(0.0, 1.0).powi(2)).max(0.0).powf(0.85)
    };
    if y > -radius && y < bottom && x.abs() < half {
        let across = x / half;
        let gore = (across.asin() / std::f64::consts::PI * 9.0 + 4.5).floor() as i64;
        let place = (across.asin() / std::f64::consts::PI * 9.0 + 4.5).rem_euclid(1.0);
        let stripes = [0xd8413au32, 0xf6efe0, 0xeaa23b, 0xf6efe0, 0xd8413a, 0xf6efe0, 0xeaa23b, 0xf6efe0, 0xd8413a];
        let mut cloth = rgb(stripes[gore.clamp(0, 8) as usize]);
        if (0.012..0.047).contains(&y) {
            cloth = rgb(0x24507f);
        }
        let (nx, ny) = (across, (y / radius).clamp(-1.0, 0.75));
        let nz = (1.0 - (nx * nx + ny * ny).min(0.98)).sqrt();
        let light = (-0.55 * nx - 0.35 * ny + 0.75 * nz).max(0.0);
        let shine = light.powi(24) * 0.35;
        let seam = 1.0 - 0.16 * smooth(0.10, 0.0, place.min(1.0 - place));
        return mix(scaled(cloth, (0.36 + 0.72 * light) * seam), [1.0; 3], shine);
    }
    let (u, v) = (x / 0.034, (y - bottom - 0.052) / 0.042);
    if u.abs() < 1.0 - 0.12 * v && (0.0..1.0).contains(&v) {
        let weave = 0.9 + 0.1 * (u * 16.0).sin() * (v * 22.0).sin();
        return scaled(mix(rgb(0x9a6a3c), rgb(0x5b3a22), 0.5 * u + 0.5), weave * if v < 0.16 { 0.6 } else { 1.0 });
    }
    let rope = (0.0..0.054).contains(&(y - bottom)) && {
        let t = (y - bottom) / 0.054;
        let at = mouth * (1.0 - t) + 0.031 * t;
        (x.abs() - at).abs() < 0.0024
    };
    if rope { rgb(0x4a3526) } else { behind }
}

/// A meadow with firs on both sides, nearest to the viewer.
fn foreground(x: f64, y: f64, behind: Colour) -> Colour {
    let mut seen = behind;
    let firs = [
        (0.045, 0.99, 0.62, 0.118),
        (0.20, 1.0, 0.40, 0.085),
        (-0.03, 1.0, 0.5, 0.12),
        (0.305, 1.0, 0.22, 0.056),
        (1.30, 1.0, 0.50, 0.105),
        (1.175, 1.02, 0.28, 0.068),
    ];
    for (centre, foot, tall, wide) in firs {
        let t = (y - (foot - tall)) / tall;
        if !(0.0..1.0).contains(&t) {
            continue;
        }
        // Branches in tiers, each wider at its lower end.
        let tier = (t * 9.0).fract();
        let ragged = 0.8 + 0.4 * noise(x * 70.0, y * 70.0, 2);
        let reach = wide * t.powf(0.85) * (0.5 + 0.5 * tier) * ragged;
        let u = (x - centre) / reach.max(1e-6);
        if u.abs() < 1.0 {
            let side = if centre < SUN[0] { u } else { -u };
            let lit = 0.5 + 0.5 * side * (1.0 - 0.5 * tier) + 0.35 * (noise(x * 90.0, y * 60.0, 2) - 0.4);
            seen = mix(rgb(0x0d211f), rgb(0x4f6b46), lit);
        }
    }
    let edge = 0.935 - 0.035 * (x * 2.3 + 0.4).sin() + 0.02 * noise(x * 6.0, 3.0, 3);
    if y > edge {
        let blades = noise(x * 60.0, y * 26.0, 3);
        let grass = mix(rgb(0x1c3324), rgb(0x7c8a4a), 1.1 * blades - 0.25 + 0.5 * smooth(0.05, 0.0, y - edge));
        seen = mix(grass, rgb(0xe8b57c), 0.35 * smooth(0.016, 0.0, y - edge));
    }
    seen
}
