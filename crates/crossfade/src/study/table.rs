//! The results of a study as text: Markdown and CSV.
use super::results::{Entry, Results};
use crate::files::csv_field;
use crate::metrics::Better;
use std::fmt::Write;

/// Formats a value with a number of digits that suits its size.
pub(super) fn number(value: f64) -> String {
    with_digits_of(value, value)
}

/// Formats a value with the number of digits that suits the size of `other`, such as a deviation with those of its mean.
fn with_digits_of(value: f64, other: f64) -> String {
    match other.abs() {
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// An entry as `mean ± deviation` without emphasis, and its significance marks. With several trainings the deviation over
/// them is followed by that over sampling seeds.
fn shown(entry: &Entry) -> (String, &'static str) {
    let marks = entry.versus.as_ref().map_or("", |versus| versus.marks);
    let text = match (entry.mean, &entry.spread) {
        (Some(mean), Some(spread)) => {
            let deviations = std::iter::once(spread.std).chain(entry.within);
            let deviations = deviations.map(|std| format!(" ± {}", with_digits_of(std, mean)));
            number(mean) + &deviations.collect::<String>()
        }
        (Some(mean), None) => number(mean),
        (None, _) => "done".into(),
    };
    (text, marks)
}

impl Results {
    /// An entry of a column as text without emphasis, and its significance marks. If it takes fewer evaluations than
    /// the column allows, their number follows in brackets.
    pub(super) fn shown(&self, entry: &Entry, column: usize) -> (String, &'static str) {
        let (text, marks) = shown(entry);
        if self.takes_fewer(entry, column) { (format!("{text} ({})", entry.nfe), marks) } else { (text, marks) }
    }

    fn takes_fewer(&self, entry: &Entry, column: usize) -> bool {
        self.columns_are == "evaluations" && entry.nfe < column
    }

    /// The caption, which explains the numbers of the table.
    pub(crate) fn caption(&self) -> String {
        let n = self.seeds.len();
        let Some(value) = self.tabled() else {
            return format!("Nothing was measured. Columns: {}.", self.columns_are);
        };
        let better = match value.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        let metric = value.title;
        let trainings = self.trainings();
        let (s, spread) = if n == 1 { ("", "") } else { ("s", " ± standard deviation") };
        let over = match trainings {
            1 => format!("mean{spread} over {n} sampling seed{s} of one training"),
            _ => {
                let all = self.rows.iter().all(|row| row.trainings == trainings);
                let models = if all { "" } else { " where a model has several, else of one" };
                let within = if n == 1 { String::new() } else { format!("{spread} over {n} sampling seeds") };
                let first = format!("mean ± standard deviation over {trainings} trainings{models}");
                format!("{first}{within}{}", if n == 1 { ", 1 sampling seed" } else { "" })
            }
        };
        let mut text = format!("{metric} ({better} is better), {over}, {} images each", self.count);
        let _ = write!(text, ". Columns: {}", self.columns_are);
        let mut entries = self.rows.iter().flat_map(|row| row.entries.iter().zip(&self.columns));
        if entries.any(|(entry, &column)| entry.as_ref().is_some_and(|entry| self.takes_fewer(entry, column))) {
            text.push_str(" at most, in brackets where they are fewer");
        }
        text.push_str(". Bold: the best of a column.");
        let others: Vec<&str> =
            self.metric.values.iter().map(|other| other.name).filter(|n| *n != value.name).collect();
        if !others.is_empty() {
            let _ = write!(text, " The other values ({}) are in the report and in results.csv.", others.join("; "));
        }
        if n > 1 || trainings > 1 {
            let other = match &self.against {
                None => "the best of the column".to_string(),
                Some(name) => format!("the best row of {name}"),
            };
            let of = if trainings > 1 { " of the means of the trainings" } else { "" };
            let _ = write!(text, " ** p < 0.01, * p < 0.05 in Welch's two-sided t-test{of} against {other}.");
        }
        text
    }

    /// The table with its caption.
    pub fn markdown(&self) -> String {
        let cell = |(entry, column): (&Option<Entry>, &usize)| match entry {
            None => "–".to_string(),
            Some(entry) => {
                let (text, marks) = self.shown(entry, *column);
                let text = if entry.best && entry.mean.is_some() { format!("**{text}**") } else { text };
                format!("{text}{}{}", if marks.is_empty() { "" } else { " " }, marks.replace('*', "\\*"))
            }
        };
        let head = self.columns.iter().map(ToString::to_string).collect();
        let mut lines = vec![[vec![String::new()], head].concat()];
        // A vertical bar would start a new column in Markdown.
        let label = |text: &str| text.replace('|', "\\|");
        lines.extend(self.rows.iter().map(|row| {
            let cells = row.entries.iter().zip(&self.columns).map(cell).collect();
            [vec![label(&row.label)], cells].concat()
        }));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=self.columns.len()).map(width).collect();
        let mut text = format!("# {}\n\n", self.title);
        for (i, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if i == 0 {
                widths.iter().for_each(|width| {
                    let _ = write!(text, "|{}", "-".repeat(width + 2));
                });
                text.push_str("|\n");
            }
        }
        let (done, all) = self.progress();
        if done < all {
            let _ = write!(text, "\n{done} of {all} measurements are done.");
        }
        let caption = self.caption().replace('*', "\\*");
        let _ = writeln!(text, "\n{caption}");
        text += &self.class_markdown();
        for (key, fact) in &self.facts {
            let _ = write!(text, "\n- {key}: {fact}");
        }
        text.push('\n');
        text
    }

    /// CSV with one line per value of a measurement.
    pub fn csv(&self) -> String {
        let mut text =
            String::from("row,model,sampler,grid,blend,steps,evaluations,training_seed,seed,images,value,number\n");
        for row in &self.rows {
            for entry in row.entries.iter().flatten() {
                let (sample, grid) = (&entry.sample, entry.sample.grid.kind.argument());
                let same = [
                    csv_field(&row.label),
                    csv_field(&row.model),
                    sample.sampler.name().into(),
                    csv_field(&grid),
                    sample.blend.name().into(),
                    sample.steps.to_string().into(),
                    entry.nfe.to_string().into(),
                ];
                for ((train_seed, seed), values) in entry.train_seeds.iter().zip(&entry.seeds).zip(&entry.values) {
                    let seeds = format!("{train_seed},{seed}");
                    for (name, value) in values {
                        let _ = writeln!(text, "{},{seeds},{},{},{value}", same.join(","), self.count, csv_field(name));
                    }
                }
            }
        }
        text
    }
}
