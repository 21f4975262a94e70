//! Measures of saliency maps against masks: MAE, F, weighted F, S and E, one file per measure.
mod curves;
mod e_measure;
mod f_measure;
mod mae;
mod metric;
mod s_measure;
mod weighted_f;

use std::path::Path;

use serde::Serialize;

pub(super) use metric::SPEC;

use super::Report;
use super::maps::{Map, MapFiles, Mask, each, paired_maps};
use crate::data::{Filter, IMAGE_ENDINGS, Image, PassOrder, resize};
use crate::error::{Error, Result};
use crate::files::{csv_field, write_atomic};
use crate::plot::{Chart, Series};
use curves::{LEVELS, adaptive, mean_and_max, overlaps};

/// The side of the images in the evaluation of the reference implementation.
const ADM_SIDE: usize = 384;

/// The size at which maps and masks are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Their own size; a map whose size differs from its mask's is an error.
    #[default]
    Original,
    /// The map is resized to the size of its mask.
    Mask,
    /// Both are resized to 384x384, as in the reference implementation.
    Adm,
}

/// How the values of a map are normalised before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalise {
    /// Not at all, so that a map without confident values is not improved.
    #[default]
    None,
    /// Stretched linearly to 0 … 1.
    MinMax,
    /// As in `sal_eval_toolbox`: divided by the maximum; for the MAE stretched to 0 … 1.
    Toolbox,
}

/// The settings of an evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SaliencyConfig {
    /// The size at which maps are compared.
    pub size: Size,
    /// How values are normalised.
    pub normalise: Normalise,
    /// The threshold at which maps are made binary first; `None` keeps them soft.
    pub binarise: Option<f64>,
}

impl SaliencyConfig {
    /// The protocol of the reference implementation: map and mask at 384x384, both thresholded at one half.
    pub fn adm() -> Self {
        Self { size: Size::Adm, normalise: Normalise::None, binarise: Some(0.5) }
    }
}

/// The scores of one image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// The name of its files.
    pub name: String,
    /// Mean absolute error.
    pub mae: f64,
    /// The maximum F over the thresholds.
    pub max_f: f64,
    /// The mean F over the thresholds.
    pub mean_f: f64,
    /// F at the adaptive threshold, twice the map's mean.
    pub adaptive_f: f64,
    /// Weighted F.
    pub weighted_f: f64,
    /// Structure measure.
    pub s: f64,
    /// The maximum E over the thresholds.
    pub max_e: f64,
    /// The mean E over the thresholds.
    pub mean_e: f64,
    /// E at the adaptive threshold, twice the map's mean.
    pub adaptive_e: f64,
}

/// Means over images at each of the thresholds k / 255.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curves {
    /// Precision.
    pub precision: Vec<f64>,
    /// Recall.
    pub recall: Vec<f64>,
    /// F of mean precision and mean recall.
    pub f: Vec<f64>,
    /// The mean of the images' F, which differs from `f`; papers use both.
    pub image_f: Vec<f64>,
    /// The mean of the images' E.
    pub e: Vec<f64>,
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Saliency {
    /// The measures with their protocol.
    pub report: Report,
    /// The scores of each image, by name.
    pub images: Vec<Scores>,
    /// Precision, recall, F and E at every threshold.
    pub curves: Curves,
}

/// Scores and curves (precision, recall, F, E) of one image, and two conditions that the report warns of.
struct Measured {
    scores: Scores,
    curves: [Vec<f64>; 4],
    empty_mask: bool,
    flat_map: bool,
}

/// Measures the maps of a folder against the masks in another; files are paired by name.
///
/// `progress(done, total)` is called after each image.
pub fn evaluate(
    maps: &Path,
    masks: &Path,
    config: &SaliencyConfig,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<Saliency> {
    if config.binarise.is_some_and(|t| !(t > 0.0 && t < 1.0)) {
        return Err(Error::request("maps are cut between 0 and 1"));
    }
    let files = paired_maps(maps, IMAGE_ENDINGS, masks, IMAGE_ENDINGS)?;
    let measured = each(&files, progress, |files| measure_files(files, config))?;
    summarise(measured, config)
}

/// The results of all images.
fn summarise(measured: Vec<Measured>, config: &SaliencyConfig) -> Result<Saliency> {
    if measured.iter().all(|m| m.empty_mask) {
        let problem = format!("none of the {} masks marks anything", measured.len());
        return Err(Error::request(format!("{problem}: recall, F, S and E mean nothing; are these the masks?")));
    }
    let curves = mean_curves(&measured);
    let report = report(&measured, &curves, config);
    let report = report.checked()?;
    Ok(Saliency { report, images: measured.into_iter().map(|m| m.scores).collect(), curves })
}

fn measure_files(files: &MapFiles, config: &SaliencyConfig) -> Result<Measured> {
    let (map, mask) = (Map::read(&files.map)?, Map::read(&files.truth)?);
    measure_images(&files.name, map, mask, config).map_err(|why| Error::file(&files.map, why))
}

/// All measures of a map and its mask, or the reason why their sizes do not fit.
fn measure_images(
    name: &str,
    map: Image,
    mask: Image,
    config: &SaliencyConfig,
) -> std::result::Result<Measured, String> {
    let side = |i: &Image| (i.width, i.height);
    let (map, mask) = match config.size {
        Size::Original if side(&map) != side(&mask) => {
            let ((w, h), (mw, mh)) = (side(&map), side(&mask));
            return Err(format!("{w}x{h} pixels, but its mask has {mw}x{mh}; --resize fits it"));
        }
        Size::Original => (map, mask),
        Size::Mask => (fit(&map, side(&mask)), mask),
        Size::Adm => (fit(&map, (ADM_SIDE, ADM_SIDE)), fit(&mask, (ADM_SIDE, ADM_SIDE))),
    };
    let (map, mask) = (Map::of(&map), Map::of(&mask).at_least(0.5));
    Ok(score(name, map, &mask, config))
}

/// Converts an image to grey and resizes it bilinearly.
fn fit(image: &Image, (width, height): (usize, usize)) -> Image {
    resize(&image.with_channels(1), width, height, Filter::Bilinear, PassOrder::HorizontalFirst)
}

/// All measures of one map and mask of the same size.
fn score(name: &str, mut map: Map, mask: &Mask, config: &SaliencyConfig) -> Measured {
    let (low, high) = map.values.iter().fold((1.0, 0.0), |(a, b): (f64, f64), &v| (a.min(v), b.max(v)));
    let flat_map = low >= high;
    match config.normalise {
        Normalise::MinMax if !flat_map => stretch(&mut map, low, high),
        Normalise::Toolbox if high > 0.0 => stretch(&mut map, 0.0, high),
        _ => (),
    }
    if let Some(threshold) = config.binarise {
        // After the normalisation, so that a threshold means the same for every map.
        map.values.iter_mut().for_each(|v| *v = f64::from(*v >= threshold));
    }
    let mae = if config.normalise == Normalise::Toolbox && !flat_map && config.binarise.is_none() {
        let mut stretched = map.clone();
        // The map was divided by its maximum above, so its minimum is low/high now.
        stretch(&mut stretched, low / high, 1.0);
        mae::mae(&stretched, mask)
    } else {
        mae::mae(&map, mask)
    };
    let levels = overlaps(&map, mask);
    let precision: Vec<f64> = levels.iter().map(|o| o.precision()).collect();
    let recall: Vec<f64> = levels.iter().map(|o| o.recall()).collect();
    let f: Vec<f64> = precision.iter().zip(&recall).map(|(&p, &r)| f_measure::f_measure(p, r)).collect();
    let e: Vec<f64> = levels.iter().map(e_measure::e_measure).collect();
    let at_mean = adaptive(&map, mask);
    let ((mean_f, max_f), (mean_e, max_e)) = (mean_and_max(&f), mean_and_max(&e));
    let scores = Scores {
        name: name.into(),
        mae,
        max_f,
        mean_f,
        adaptive_f: f_measure::f_measure(at_mean.precision(), at_mean.recall()),
        weighted_f: weighted_f::weighted_f(&map, mask),
        s: s_measure::s_measure(&map, mask),
        max_e,
        mean_e,
        adaptive_e: e_measure::e_measure(&at_mean),
    };
    Measured { scores, curves: [precision, recall, f, e], empty_mask: mask.count() == 0, flat_map }
}

fn stretch(map: &mut Map, low: f64, high: f64) {
    map.values.iter_mut().for_each(|v| *v = (*v - low) / (high - low));
}

fn mean_curves(measured: &[Measured]) -> Curves {
    let mean = |i: usize| -> Vec<f64> {
        let sum = |k: usize| measured.iter().map(|m| m.curves[i][k]).sum::<f64>();
        (0..LEVELS).map(|k| sum(k) / measured.len() as f64).collect()
    };
    let (precision, recall) = (mean(0), mean(1));
    let f = precision.iter().zip(&recall).map(|(&p, &r)| f_measure::f_measure(p, r)).collect();
    Curves { precision, recall, f, image_f: mean(2), e: mean(3) }
}

/// The facts of the protocol that a report states in addition to its name.
fn protocol_facts(config: &SaliencyConfig) -> Vec<(String, String)> {
    let size = match config.size {
        Size::Original => "original",
        Size::Mask => "the mask's, maps resized bilinearly (Pillow)",
        Size::Adm => "384x384, both resized bilinearly (Pillow)",
    };
    let normalise = match config.normalise {
        Normalise::None => "none",
        Normalise::MinMax => "minimum to 0, maximum to 1",
        Normalise::Toolbox => "maximum to 1; for the MAE also minimum to 0 (sal_eval_toolbox)",
    };
    let maps = config.binarise.map_or("soft".to_string(), |t| format!("binary, cut at {t}"));
    [
        ("size", size),
        ("maps", &maps),
        ("normalised", normalise),
        ("masks", "cut at 0.5"),
        ("thresholds", "k/255 for k = 0 … 255"),
        ("F", "beta^2 = 0.3, of the mean precision and recall; image mean: the mean of the images' F"),
        ("others", "weighted F with beta = 1 (Margolin 2014), S with alpha = 0.5 (Fan 2017), E (Fan 2018)"),
    ]
    .map(|(key, fact)| (key.to_string(), fact.to_string()))
    .into()
}

fn report(measured: &[Measured], curves: &Curves, config: &SaliencyConfig) -> Report {
    let mean = |of: fn(&Scores) -> f64| measured.iter().map(|m| of(&m.scores)).sum::<f64>() / measured.len() as f64;
    let ((mean_f, max_f), (mean_image_f, max_image_f)) = (mean_and_max(&curves.f), mean_and_max(&curves.image_f));
    let (mean_e, max_e) = mean_and_max(&curves.e);
    let mut report = Report::new(SPEC.name)
        .value("MAE", mean(|s| s.mae))
        .value("max F", max_f)
        .value("mean F", mean_f)
        .value("adaptive F", mean(|s| s.adaptive_f))
        .value("max F, image mean", max_image_f)
        .value("mean F, image mean", mean_image_f)
        .value("weighted F", mean(|s| s.weighted_f))
        .value("S", mean(|s| s.s))
        .value("max E", max_e)
        .value("mean E", mean_e)
        .value("adaptive E", mean(|s| s.adaptive_e))
        .with("protocol", if *config == SaliencyConfig::adm() { "adm" } else { "standard" })
        .with("images", measured.len());
    report.protocol.extend(protocol_facts(config));
    let count = |of: fn(&Measured) -> bool| measured.iter().filter(|m| of(m)).count();
    match count(|m| m.empty_mask) {
        0 => (),
        n => report = report.warn(format!("{n} masks are empty: their precision, recall and F count as zero")),
    }
    match count(|m| m.flat_map) {
        0 => (),
        n => report = report.warn(format!("{n} maps have one value everywhere and are never stretched")),
    }
    if config.binarise.is_some() {
        report = report.warn("maps are binary, so max, mean and adaptive F and E say little beyond one another");
    }
    report
}

impl Saliency {
    /// Writes the images' scores as CSV.
    pub fn save_table(&self, path: &Path) -> Result<()> {
        let mut text = String::from("name,mae,max_f,mean_f,adaptive_f,weighted_f,s,max_e,mean_e,adaptive_e\n");
        for s in &self.images {
            let values = [s.mae, s.max_f, s.mean_f, s.adaptive_f, s.weighted_f, s.s, s.max_e, s.mean_e, s.adaptive_e];
            let cells: Vec<String> = values.iter().map(|v| format!("{v:.8}")).collect();
            text += &format!("{},{}\n", csv_field(&s.name), cells.join(","));
        }
        write_atomic(path, text.as_bytes())
    }

    /// Draws precision against recall into an `.svg` or `.png` file.
    pub fn plot(&self, path: &Path) -> Result<()> {
        let points = self.curves.recall.iter().copied().zip(self.curves.precision.iter().copied()).collect();
        let (_, max_f) = mean_and_max(&self.curves.f);
        let name = format!("max F {max_f:.3}");
        Chart {
            title: format!("Saliency, {} images", self.images.len()),
            x_label: "recall".into(),
            y_label: "precision".into(),
            log: false,
            series: vec![Series { name, points }],
        }
        .save(path)
    }
}
