//! The benchmark's chart: precision against recall, curves of equal F, and the score of human annotators.
use std::path::Path;

use plotters::prelude::*;

use super::summary::Summary;
use crate::data::Image;
use crate::error::{Error, Result};
use crate::files::write_atomic;

/// Size of the chart in pixels.
const SIZE: (u32, u32) = (720, 720);
/// Recall and precision of human annotators on BSDS500 (F = 0.80), each compared with the others.
const HUMAN: (f64, f64) = (0.7235, 0.9014);
const CURVE_COLOUR: RGBColor = RGBColor(0, 114, 178);
const HUMAN_COLOUR: RGBColor = RGBColor(0, 158, 115);

/// Draws the curve into an `.svg` or `.png` file.
pub fn plot(summary: &Summary, title: &str, path: &Path) -> Result<()> {
    crate::plot::embed_font();
    let bytes = match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => {
            let mut text = String::new();
            draw(summary, title, SVGBackend::with_string(&mut text, SIZE)).map_err(|e| Error::file(path, e))?;
            text.into_bytes()
        }
        Some("png") => {
            let mut pixels = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
            draw(summary, title, BitMapBackend::with_buffer(&mut pixels, SIZE)).map_err(|e| Error::file(path, e))?;
            Image::new(SIZE.0 as usize, SIZE.1 as usize, 3, pixels).encode_png(&[])?
        }
        _ => return Err(Error::file(path, "a chart is written as .svg or .png")),
    };
    write_atomic(path, &bytes)
}

fn draw<B: DrawingBackend>(summary: &Summary, title: &str, backend: B) -> std::result::Result<(), String> {
    draw_chart(summary, title, &backend.into_drawing_area()).map_err(|e| e.to_string())
}

type Drawn<E> = std::result::Result<(), DrawingAreaErrorKind<E>>;

fn draw_chart<B: DrawingBackend>(
    summary: &Summary,
    title: &str,
    area: &DrawingArea<B, plotters::coord::Shift>,
) -> Drawn<B::ErrorType> {
    area.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(area);
    builder.caption(title, ("sans-serif", 20)).margin(16).x_label_area_size(44).y_label_area_size(56);
    let mut chart = builder.build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("recall").y_desc("precision").label_style(("sans-serif", 14)).axis_desc_style(("sans-serif", 16));
    mesh.light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.06)).draw()?;

    for tenth in 1..10 {
        let f = f64::from(tenth) / 10.0;
        let (line, place) = equal_f(f);
        chart.draw_series(LineSeries::new(line, HUMAN_COLOUR.mix(0.35)))?;
        let label = Text::new(format!("F = {f}"), place, ("sans-serif", 12).into_font().color(&HUMAN_COLOUR.mix(0.8)));
        chart.draw_series([label])?;
    }

    // At a recall of zero precision is undefined; the benchmark leaves such points out too.
    let points = summary.curve.iter().filter(|p| p.recall >= 1e-3).map(|p| (p.recall, p.precision));
    chart
        .draw_series(LineSeries::new(points, CURVE_COLOUR.stroke_width(3)))?
        .label(format!("ODS {:.3}, OIS {:.3}, AP {:.3}", summary.ods.f, summary.ois.f, summary.ap))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], CURVE_COLOUR.stroke_width(3)));
    let best = (summary.ods.recall, summary.ods.precision);
    chart.draw_series([Circle::new(best, 5, CURVE_COLOUR.filled())])?;
    chart
        .draw_series([Circle::new(HUMAN, 6, HUMAN_COLOUR.filled())])?
        .label("people on the BSDS500, F 0.80")
        .legend(|(x, y)| Circle::new((x + 9, y), 6, HUMAN_COLOUR.filled()));
    let mut labels = chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.9)).border_style(BLACK.mix(0.3)).label_font(("sans-serif", 14));
    labels.position(SeriesLabelPosition::LowerLeft).draw()?;
    area.present()
}

/// The curve p = f r / (2 r − f) of equal F, and the position of its label at the right border.
fn equal_f(f: f64) -> (Vec<(f64, f64)>, (f64, f64)) {
    let start = f / (2.0 - f);
    let line = (0..=200).map(|i| start + (1.0 - start) * f64::from(i) / 200.0).map(|r| (r, f * r / (2.0 * r - f)));
    (line.collect(), (0.925, f * 0.925 / (1.85 - f) + 0.022))
}
