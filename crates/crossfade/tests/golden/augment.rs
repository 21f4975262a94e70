//! The augmentation pipe with every draw given: images and labels.
use crossfade::augment::{Draws, Margin, augment};
use crossfade::nn::named::fnv1a;

use crate::case::Case;
use crate::compare;
use crate::formula::{Rule, u};

/// The settings that are constants of the pipe.
const FIXED: [(&str, f64); 11] = [
    ("xflip", 1e8),
    ("yflip", 1.0),
    ("scale", 1.0),
    ("rotate_frac", 1.0),
    ("aniso", 1.0),
    ("translate_frac", 1.0),
    ("scale_std", 0.2),
    ("rotate_frac_max", 1.0),
    ("aniso_std", 0.2),
    ("aniso_rotate_prob", 0.5),
    ("translate_frac_std", 0.125),
];

/// Draw `number` of the case for image `k`; `row` counts in draws of shape [rows, N].
fn draw(case: &Case, number: usize, row: usize, k: usize) -> f64 {
    let n = case.shape("images")[0];
    let [name, kind, _] = case.json["draws"][number].as_array().unwrap().as_slice() else {
        panic!("a draw has 3 fields")
    };
    let u = u(fnv1a(&format!("{}{}", case.salt, name.as_str().unwrap())), (row * n + k) as u64);
    let value = match kind.as_str().unwrap() {
        "randint(2): floor((u+1)/2*2)" => ((u + 1.0) / 2.0 * 2.0).floor(),
        "rand: (u+1)/2" => (u + 1.0) / 2.0,
        "randn: sqrt(3)*u" => 3f64.sqrt() * u,
        other => panic!("unknown draw {other}"),
    };
    f64::from(value as f32)
}

fn draws(case: &Case, k: usize) -> Draws {
    let draw = |number| draw(case, number, 0, k);
    Draws {
        xflip: draw(0) == 1.0,
        xflip_gate: draw(1),
        yflip: draw(2) == 1.0,
        yflip_gate: draw(3),
        scale: draw(4),
        scale_gate: draw(5),
        rotate: draw(6),
        rotate_gate: draw(7),
        aniso: draw(8),
        aniso_angle: draw(9),
        aniso_gate: draw(10),
        aniso_angle_gate: draw(11),
        translate: [draw(12), self::draw(case, 12, 1, k)],
        translate_gate: draw(13),
    }
}

pub fn check(case: &Case) -> Vec<String> {
    let settings = &case.json["settings"];
    FIXED.iter().for_each(|(key, value)| assert_eq!(settings[key].as_f64(), Some(*value), "{key}"));
    let about = &case.json["inputs"]["images"];
    let shape: [usize; 4] = case.shape("images").try_into().unwrap();
    // Here the name has its salt already.
    let rule = Rule::parse(about["rule"].as_str().unwrap());
    let mut images = rule.values(about["name"].as_str().unwrap(), shape.iter().product());
    let draws: Vec<Draws> = (0..shape[0]).map(|k| draws(case, k)).collect();
    let labels = augment(&mut images, shape, &draws, settings["p"].as_f64().unwrap(), Margin::Batch);
    let mut failures = compare::output(case, "images", &images, false);
    failures.extend(compare::output(case, "labels", labels.as_flattened(), false));
    failures
}
