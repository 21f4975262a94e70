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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::summary::summarise;
    use super::*;
    use crate::metrics::edges::counts::Counts;

    #[test]
    fn curves_of_equal_f_have_that_f() {
        for f in [0.1, 0.5, 0.9] {
            let (line, (x, y)) = equal_f(f);
            assert_eq!(line.len(), 201);
            for &(recall, precision) in &line {
                assert!((2.0 * recall * precision / (recall + precision) - f).abs() < 1e-12, "{recall} {precision}");
                assert!(precision <= 1.0 + 1e-12 && recall <= 1.0 + 1e-12);
            }
            assert!((line[0].1 - 1.0).abs() < 1e-12 && (line[200].0 - 1.0).abs() < 1e-12, "from border to border");
            // The label is a little above the curve.
            assert!((2.0 * x * (y - 0.022) / (x + y - 0.022) - f).abs() < 1e-12);
        }
    }

    #[test]
    fn the_chart_tells_the_scores_and_has_both_formats() {
        let dir = tempfile::tempdir().unwrap();
        let counts = |cnt| Counts { cnt_r: cnt, sum_r: 10, cnt_p: cnt, sum_p: 10 };
        let summary = summarise(&[0.25, 0.75], &[vec![counts(9), counts(4)]]);
        let svg = dir.path().join("a.svg");
        plot(&summary, "Edges of a test", &svg).unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(text.contains("Edges of a test") && text.contains("ODS 0.900, OIS 0.900"), "{text}");
        for tenth in 1..10 {
            assert!(text.contains(&format!("F = 0.{tenth}")));
        }
        let png = dir.path().join("a.png");
        plot(&summary, "Edges", &png).unwrap();
        let image = Image::read(&png).unwrap();
        assert_eq!((image.width, image.height), (SIZE.0 as usize, SIZE.1 as usize));
        assert!(plot(&summary, "Edges", &dir.path().join("a.gif")).unwrap_err().to_string().contains(".svg or .png"));
    }
}
