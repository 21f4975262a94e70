//! The reference's windows: where they lie, and the mean of their outputs, plain, mirrored and four times as large.
use crossfade::tile::{Plan, Window, run};
use serde_json::Value;

use crate::case::{Case, usizes};
use crate::compare;
use crate::formula::Rule;

fn pair(value: &Value) -> [usize; 2] {
    usizes(value).try_into().unwrap()
}

/// index + column/8 + row/4 over a window.
fn ramp(index: usize, height: usize, width: usize) -> Vec<f32> {
    let at = |y: usize, x: usize| index as f32 + x as f32 / 8.0 + y as f32 / 4.0;
    (0..height).flat_map(|y| (0..width).map(move |x| at(y, x))).collect()
}

fn mirrored(mut map: Vec<f32>, width: usize) -> Vec<f32> {
    map.chunks_exact_mut(width).for_each(<[f32]>::reverse);
    map
}

/// What the function of that name gives for the `index`-th window.
fn function(name: &str, index: usize, w: &Window, image: &[f32], image_width: usize) -> Vec<f32> {
    match name {
        "index" => vec![index as f32; w.height * w.width],
        "ramp" => ramp(index, w.height, w.width),
        "flip" => {
            let back = mirrored(ramp(2 * index + 1, w.height, w.width), w.width);
            ramp(2 * index, w.height, w.width).iter().zip(back).map(|(a, b)| (a + b) / 2.0).collect()
        }
        "echo" => {
            let rows = (w.y..w.y + w.height).flat_map(|y| &image[y * image_width + w.x..][..w.width]);
            rows.map(|v| (index + 1) as f32 * v).collect()
        }
        other => panic!("unknown function {other}"),
    }
}

/// The blended result, with windows evaluated two at a time.
fn blended(plan: &Plan, mut evaluate: impl FnMut(usize, &Window) -> Vec<f32>) -> Vec<f32> {
    let (mut out, mut index) = (vec![], 0);
    let mut all = |windows: &[Window]| {
        let outputs = windows.iter().map(|w| {
            index += 1;
            evaluate(index - 1, w)
        });
        Ok(outputs.collect())
    };
    run(plan, 1, 2, &mut all, &mut |rows| {
        out.extend_from_slice(rows.values);
        Ok(())
    })
    .unwrap();
    out
}

pub fn check(case: &Case) -> Vec<String> {
    let mut failures = vec![];
    for (k, spec) in case.json["runs"].as_array().unwrap().iter().enumerate() {
        let [height, width] = pair(&spec["image"]);
        let plan = Plan::reference([height, width], pair(&spec["crop"]), pair(&spec["stride"]), 1);
        let ours: Vec<[usize; 4]> = plan.windows().iter().map(|w| [w.y, w.y + w.height, w.x, w.x + w.width]).collect();
        let want: Vec<Vec<usize>> = spec["windows_y1y2x1x2"].as_array().unwrap().iter().map(usizes).collect();
        if ours.iter().map(|w| w.to_vec()).collect::<Vec<_>>() != want {
            failures.push(format!("run {k}: windows {ours:?}, expected {want:?}"));
        }
        let name = format!("{}{}", case.salt, spec["input_name"].as_str().unwrap());
        let image = Rule::Uniform.values(&name, 3 * height * width);
        for name in ["index", "ramp", "echo", "flip"] {
            let map = blended(&plan, |index, w| function(name, index, w, &image, width));
            failures.extend(compare::output(case, &format!("r{k}_{name}"), &map, false));
        }
    }
    let sr = &case.json["sr"];
    let scale = sr["scale"].as_u64().unwrap() as usize;
    let plan = Plan::reference(pair(&sr["cond"]), pair(&sr["crop"]), pair(&sr["stride"]), scale);
    let large = blended(&plan, |index, w| ramp(index, scale * w.height, scale * w.width));
    let ([height, width], whole) = (pair(&sr["ori_size"]), scale * pair(&sr["cond"])[1]);
    let cut: Vec<f32> = large.chunks_exact(whole).take(height).flat_map(|row| &row[..width]).copied().collect();
    failures.extend(compare::output(case, "sr_ramp", &cut, false));
    failures
}
