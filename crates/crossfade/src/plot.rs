//! Line charts as SVG and PNG, with an embedded font so that they look the same on every machine.
use crate::data::Image;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;
use std::sync::Once;

/// One line of a chart.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points; those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// A line chart.
pub struct Chart {
    /// The title above the chart.
    pub title: String,
    /// The label of the horizontal axis.
    pub x_label: String,
    /// The label of the vertical axis.
    pub y_label: String,
    /// Whether both axes are logarithmic.
    pub log: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// The area between two lines, drawn lightly behind the series with the same index.
pub struct Band {
    /// The lower line.
    pub low: Vec<(f64, f64)>,
    /// The upper line, at the same x values.
    pub high: Vec<(f64, f64)>,
}

/// Size of the chart without its legend, in pixels.
const SIZE: (u32, u32) = (840, 600);
/// Height of a line of the legend, in pixels.
const LEGEND_LINE: u32 = 22;
/// (dash, gap) lengths. The first nine series are solid; when the colours repeat, the next pattern tells them apart.
const DASHES: [(u32, u32); 4] = [(0, 0), (8, 4), (3, 4), (14, 5)];

/// Colours that can be told apart in print and by colour-blind readers (Okabe and Ito's palette and a grey).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
    RGBColor(150, 60, 40),
    RGBColor(0, 0, 0),
];

/// Registers the embedded font; only the first call has an effect.
pub(crate) fn embed_font() {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        // The font is part of the crate, so registering it cannot fail at run time.
        let _ = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
    });
}

/// Stacks images vertically, each below its title.
pub fn board(panels: &[(String, Image)]) -> Result<Image> {
    const MARGIN: usize = 16;
    const TITLE: usize = 30;
    embed_font();
    let width = panels.iter().map(|(_, image)| image.width).max().unwrap_or(0) + 2 * MARGIN;
    let height = panels.iter().map(|(_, image)| image.height + TITLE + MARGIN).sum::<usize>() + MARGIN;
    let mut pixels = vec![255; width * height * 3];
    let tops: Vec<usize> = panels
        .iter()
        .scan(MARGIN, |top, (_, image)| {
            let here = *top;
            *top += TITLE + image.height + MARGIN;
            Some(here)
        })
        .collect();
    {
        // The drawing area borrows `pixels` until the end of this block.
        let area = BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32)).into_drawing_area();
        for ((title, _), top) in panels.iter().zip(&tops) {
            let text = Text::new(title.as_str(), (MARGIN as i32, *top as i32 + 4), ("sans-serif", 18));
            area.draw(&text).map_err(|e| Error::Run(e.to_string()))?;
        }
    }
    for ((_, image), top) in panels.iter().zip(&tops) {
        let rgb = image.with_channels(3);
        for (y, row) in rgb.pixels.chunks_exact(rgb.width * 3).enumerate() {
            let start = ((top + TITLE + y) * width + MARGIN) * 3;
            pixels[start..start + row.len()].copy_from_slice(row);
        }
    }
    Ok(Image::new(width, height, 3, pixels))
}

/// Stacks images vertically, each to the right of its label, whose lines are drawn below each other.
pub fn labelled(rows: &[(Vec<String>, Image)]) -> Result<Image> {
    const LABEL: usize = 190;
    const LINE: usize = 19;
    const GAP: usize = 6;
    embed_font();
    let heights: Vec<usize> = rows.iter().map(|(lines, image)| image.height.max(lines.len() * LINE) + GAP).collect();
    let width = LABEL + rows.iter().map(|(_, image)| image.width).max().unwrap_or(0);
    let height = heights.iter().sum::<usize>().max(1);
    let mut pixels = vec![255; width * height * 3];
    let tops = heights.iter().scan(0, |top, height| {
        *top += height;
        Some(*top - height)
    });
    let tops: Vec<usize> = tops.collect();
    {
        // The drawing area borrows `pixels` until the end of this block.
        let area = BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32)).into_drawing_area();
        for (((lines, _), top), height) in rows.iter().zip(&tops).zip(&heights) {
            let first = top + (height - GAP - lines.len() * LINE) / 2;
            for (k, line) in lines.iter().enumerate() {
                let style = ("sans-serif", 14).into_font().color(&RGBColor(90, 86, 78));
                let text = Text::new(line.as_str(), (0, (first + k * LINE) as i32), style);
                area.draw(&text).map_err(|e| Error::Run(e.to_string()))?;
            }
        }
    }
    for ((_, image), top) in rows.iter().zip(&tops) {
        let rgb = image.with_channels(3);
        for (y, row) in rgb.pixels.chunks_exact(rgb.width * 3).enumerate() {
            let start = ((top + y) * width + LABEL) * 3;
            pixels[start..start + row.len()].copy_from_slice(row);
        }
    }
    Ok(Image::new(width, height, 3, pixels))
}

impl Chart {
    /// Writes the chart; the path's ending, `.svg` or `.png`, chooses the format.
    pub fn save(&self, path: &Path) -> Result<()> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("svg") => write_atomic(path, self.svg(&[])?.as_bytes()),
            Some("png") => write_atomic(path, &self.image()?.encode_png(&[])?),
            _ => Err(Error::file(path, "a chart is written as .svg or .png")),
        }
    }

    /// The chart as SVG, with a band behind each series; `bands` may be shorter than the series.
    pub fn svg(&self, bands: &[Band]) -> Result<String> {
        embed_font();
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, self.size()).into_drawing_area(), bands).map_err(Error::Run)?;
        Ok(text)
    }

    /// The chart as an RGB image.
    pub fn image(&self) -> Result<Image> {
        embed_font();
        let (width, height) = self.size();
        let mut pixels = vec![0; (width * height * 3) as usize];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        self.draw(&area, &[]).map_err(Error::Run)?;
        drop(area);
        Ok(Image::new(width as usize, height as usize, 3, pixels))
    }

    /// Width and height including the legend, which is to the right of the chart so that it covers no data.
    fn size(&self) -> (u32, u32) {
        let longest = self.series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0) as u32;
        (SIZE.0 + 60 + 8 * longest, SIZE.1.max(60 + LEGEND_LINE * self.series.len() as u32))
    }

    /// Colour and dash pattern of series `number`.
    fn style(number: usize) -> (RGBColor, (u32, u32)) {
        (COLOURS[number % COLOURS.len()], DASHES[number / COLOURS.len() % DASHES.len()])
    }

    fn legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
    ) -> std::result::Result<(), String> {
        for (i, series) in self.series.iter().enumerate() {
            let (colour, (dash, gap)) = Self::style(i);
            let y = 52 + LEGEND_LINE as i32 * i as i32;
            let line = [(4, y), (36, y)];
            match dash {
                0 => area.draw(&PathElement::new(line, colour.stroke_width(2))),
                _ => area.draw(&DashedPathElement::new(line, dash, gap, colour.stroke_width(2))),
            }
            .map_err(|e| e.to_string())?;
            let text = Text::new(series.name.as_str(), (44, y - 5), ("sans-serif", 14));
            area.draw(&text).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
        bands: &[Band],
    ) -> std::result::Result<(), String> {
        let ((x0, x1), (y0, y1)) = (self.range(bands, |p| p.0), self.range(bands, |p| p.1));
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let (plot, legend_area) = area.split_horizontally(SIZE.0);
        self.legend(&legend_area)?;
        let mut builder = ChartBuilder::on(&plot);
        builder.caption(&self.title, ("sans-serif", 20)).margin(16);
        builder.x_label_area_size(48).y_label_area_size(72);
        // Linear and logarithmic axes are different types, hence two calls of the generic function.
        if self.log {
            let axis = |low: f64, high: f64| (low..high).log_scale().with_key_points(ticks(low, high));
            let chart = builder.build_cartesian_2d(axis(x0, x1), axis(y0, y1));
            self.lines(chart.map_err(|e| e.to_string())?, bands)
        } else {
            self.lines(builder.build_cartesian_2d(x0..x1, y0..y1).map_err(|e| e.to_string())?, bands)
        }
        .and_then(|()| area.present().map_err(|e| e.to_string()))
    }

    fn lines<'a, B, X, Y>(
        &self,
        mut chart: ChartContext<'a, B, Cartesian2d<X, Y>>,
        bands: &[Band],
    ) -> std::result::Result<(), String>
    where
        B: DrawingBackend + 'a,
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let label = |y: &f64| match self.log && !(0.01..10_000.0).contains(y) {
            true => format!("{y:.0e}"),
            // Rounding removes digits such as 0.30000000000000004 from the labels.
            false => format!("{}", (y * 1e9).round() / 1e9),
        };
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x_label).y_desc(&self.y_label).label_style(("sans-serif", 14));
        mesh.x_label_formatter(&label).y_label_formatter(&label);
        mesh.axis_desc_style(("sans-serif", 16))
            .light_line_style(BLACK.mix(0.06))
            .max_light_lines(2)
            .draw()
            .map_err(|e| e.to_string())?;
        for (i, band) in bands.iter().enumerate() {
            let outline: Vec<_> =
                band.low.iter().chain(band.high.iter().rev()).copied().filter(|p| self.drawable(p)).collect();
            let area = Polygon::new(outline, Self::style(i).0.mix(0.15));
            chart.draw_series([area]).map_err(|e| e.to_string())?;
        }
        for (i, series) in self.series.iter().enumerate() {
            let (colour, (dash, gap)) = Self::style(i);
            let points: Vec<_> = series.points.iter().copied().filter(|p| self.drawable(p)).collect();
            match dash {
                0 => chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).map(drop),
                _ => {
                    let dashed = DashedPathElement::new(points.clone(), dash, gap, colour.stroke_width(2));
                    chart.draw_series([dashed]).map(drop)
                }
            }
            .map_err(|e| e.to_string())?;
            // Many dots would hide the line.
            if points.len() <= 60 {
                let dots = points.into_iter().map(|p| Circle::new(p, 3, colour.filled()));
                chart.draw_series(dots).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Whether a point can be drawn: it is finite, and positive on logarithmic axes.
    fn drawable(&self, p: &(f64, f64)) -> bool {
        p.0.is_finite() && p.1.is_finite() && (!self.log || (p.0 > 0.0 && p.1 > 0.0))
    }

    /// The range of one coordinate over all drawable points, with a small margin.
    fn range(&self, bands: &[Band], of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let around = bands.iter().flat_map(|band| band.low.iter().chain(&band.high));
        let values = self.series.iter().flat_map(|s| &s.points).chain(around).filter(|p| self.drawable(p)).map(of);
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        match (low.is_finite(), self.log) {
            // Without any point the axes still need a range that is valid on a logarithmic scale.
            (false, _) => (1.0, 10.0),
            (true, true) => (low / 1.3, high * 1.3),
            (true, false) => {
                let padding = 0.04 * (high - low).max(1e-3 * high.abs()).max(1e-9);
                (low - padding, high + padding)
            }
        }
    }
}

/// Round numbers for the ticks of a logarithmic axis: powers of ten, and values between them on short axes.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = match (high / low).log10() {
        decades if decades < 1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        decades if decades < 3.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_written_in_both_formats() {
        let chart = Chart {
            title: "error".into(),
            x_label: "evaluations".into(),
            y_label: "RMS".into(),
            log: true,
            series: vec![Series { name: "a".into(), points: vec![(5.0, 0.1), (10.0, 0.02), (20.0, f64::NAN)] }],
        };
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.svg", "a.png"] {
            let path = dir.path().join(name);
            chart.save(&path).unwrap();
            assert!(std::fs::metadata(&path).unwrap().len() > 1000);
        }
        assert!(chart.save(&dir.path().join("a.gif")).is_err());
    }

    #[test]
    fn labels_stand_beside_their_images() {
        let image = Image::new(20, 30, 3, vec![0; 1800]);
        let rows = [(vec!["a label".to_string(), "of two lines".into()], image.clone()), (vec![], image)];
        let drawn = labelled(&rows).unwrap();
        // Two lines are higher than the first image.
        assert_eq!((drawn.width, drawn.height), (210, 38 + 6 + 30 + 6));
        let dark = |x: usize, y: usize| drawn.pixels[(y * drawn.width + x) * 3] == 0;
        assert!(dark(190, 0) && dark(209, 29) && !dark(190, 31) && dark(190, 44) && !dark(189, 50));
        assert!(drawn.pixels[..210 * 3 * 38].chunks(3).any(|p| p[0] > 80 && p[0] < 200), "no label was drawn");
    }
}
