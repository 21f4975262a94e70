//! Values of each class: what the protocol says of them, and their table.
use super::page::{Page, Td};
use super::plan::Plan;
use super::results::{Entry, Results};
use super::table::number;
use crate::config::RANDOM_CLASS;
use crate::data::Classes;
use crate::metrics::features::{FEW, class_value};
use crate::nn::BackboneConfig;
use std::collections::BTreeSet;
use std::fmt::Write;

/// What values of classes depend on: how the classes of the images are chosen, and how many images each of them has.
pub(super) fn class_facts(plan: &Plan, classes: &Classes) -> Vec<(String, String)> {
    let (count, images) = (classes.names.len(), plan.study.sample.count);
    let conditional = plan.models.iter().filter(|model| model.config.network.classes() > 0);
    let choices: BTreeSet<&str> = conditional.map(|model| model.config.sample.class.as_str()).collect();
    let choice = |choice: &str| match choice {
        RANDOM_CLASS => {
            format!("drawn uniformly for each image from the sampling seed, about {} each", images / count as u64)
        }
        "all" => format!("in turn, image k has class k mod {count}: {} images each", images / count as u64),
        other => format!("sample.class = {other}"),
    };
    let choices: Vec<String> = choices.into_iter().map(choice).collect();
    let counts = classes.counts();
    let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
    let reference = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let mut facts = vec![
        ("classes".to_string(), format!("{count}: {}", classes.names.join(", "))),
        ("classes of images".into(), choices.join("; ")),
        ("class reference images".into(), reference),
    ];
    let mut warn = |text: String| facts.push(("class warning".into(), text));
    if images / (count as u64) < FEW {
        warn(format!(
            "fewer than {FEW} images of a class: its value is biased upwards; compare only with values of as many images"
        ));
    }
    if least != most {
        let advice = "the value over all images also measures the shares of the classes";
        warn(format!(
            "the classes of the reference have different numbers of images, those of the images equal ones: {advice}"
        ));
    }
    facts
}

impl Results {
    /// The names of the classes that have values, in the order of the metric.
    fn classes(&self) -> Vec<String> {
        let Some(tabled) = self.tabled() else { return vec![] };
        let prefix = class_value(tabled.name, "");
        let entries = self.rows.iter().flat_map(|row| row.entries.iter().flatten());
        let mut found: Vec<String> = vec![];
        for name in entries.flat_map(|entry| entry.values.iter().flatten()).map(|(name, _)| name) {
            let class = name.strip_prefix(&prefix).map(String::from);
            found.extend(class.filter(|class| !found.contains(class)));
        }
        found
    }

    /// Whether a value is that of a class, which has a table of its own.
    pub(super) fn is_of_class(&self, name: &str) -> bool {
        self.tabled().is_some_and(|tabled| name.starts_with(&class_value(tabled.name, "")))
    }

    /// The head and the lines of the table of classes: a line for each row and column of the study.
    fn class_table(&self) -> Option<(Vec<String>, Vec<Vec<String>>)> {
        let (tabled, classes) = (self.tabled()?, self.classes());
        if classes.is_empty() {
            return None;
        }
        let mean = |entry: &Entry, class: &String| {
            let values = entry.values_of(&class_value(tabled.name, class));
            match values.is_empty() {
                true => "–".into(),
                false => number(values.iter().sum::<f64>() / values.len() as f64),
            }
        };
        let mut lines = vec![];
        for row in &self.rows {
            for (entry, column) in row.entries.iter().zip(&self.columns) {
                let Some(entry) =
                    entry.as_ref().filter(|e| e.values.iter().flatten().any(|(n, _)| self.is_of_class(n)))
                else {
                    continue;
                };
                let label = format!("{}, {column} {}", row.label, self.columns_are);
                let all = entry.mean.map_or("–".into(), number);
                lines.push([vec![label, all], classes.iter().map(|class| mean(entry, class)).collect()].concat());
            }
        }
        Some(([vec![String::new(), "all".into()], classes].concat(), lines))
    }

    /// The table of classes in Markdown, if there is one.
    pub(super) fn class_markdown(&self) -> String {
        let Some((head, lines)) = self.class_table() else { return String::new() };
        // A vertical bar would start a new column in Markdown.
        let line = |cells: &[String]| {
            format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
        };
        let mut text = String::from("\nBy class, means:\n\n") + &line(&head);
        let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
        lines.iter().for_each(|cells| text += &line(cells));
        text
    }

    /// The table of classes on the page of the report, if there is one.
    pub(super) fn class_page(&self, page: &mut Page) {
        let Some((head, lines)) = self.class_table() else { return };
        page.heading("By class");
        page.table(&head, lines.into_iter().map(|cells| cells.into_iter().map(Td::new).collect()).collect());
        page.note("Means over all measurements. How many images a class has is under \"How it was made\".");
    }
}
