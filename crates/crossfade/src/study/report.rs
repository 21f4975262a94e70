//! The files of a study's results, among them the report as a self-contained HTML page.
use super::cell::{Identity, StudyDir};
use super::chart::{CHART, ESTIMATE, ESTIMATE_METRIC};
use super::page::{Page, Td};
use super::results::Results;
use super::table::number;
use crate::data::Image;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::limits;
use crate::metrics::features::FEW;

impl Results {
    /// Writes table.md, results.csv, results.json, the charts and report.html.
    pub(super) fn save(&self, dir: &StudyDir) -> Result<()> {
        let json = serde_json::to_string_pretty(self).map_err(|e| Error::Run(e.to_string()))?;
        let charts = self.charts()?;
        let page = self.page(dir, &charts);
        let mut files = vec![
            ("table.md", self.markdown()),
            ("results.csv", self.csv()),
            ("results.json", json + "\n"),
            ("report.html", page),
        ];
        let every = [CHART, ESTIMATE, ESTIMATE_METRIC];
        for name in every.into_iter().filter(|name| charts.iter().all(|(drawn, _)| drawn != name)) {
            // An earlier study in this directory may have left a chart that this one does not draw.
            match std::fs::remove_file(dir.0.join(name)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(dir.0.join(name))(e)),
                _ => (),
            }
        }
        files.extend(charts);
        for (name, text) in files {
            write_atomic(dir.0.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    /// The report as an HTML page.
    fn page(&self, dir: &StudyDir, charts: &[(&'static str, String)]) -> String {
        let mut page = Page::new(&self.title);
        let (done, all) = self.progress();
        if done < all {
            page.paragraph(&format!("Unfinished: {done} of {all} measurements are done."));
        }
        self.table_of(&mut page);
        if self.metric.name == "fid" && self.count < FEW {
            let advice = "compare such numbers only with numbers of as many images";
            page.note(&format!("Below {FEW} images FID is biased upwards; {advice}."));
        }
        for (_, chart) in charts {
            page.svg(chart);
        }
        if charts.iter().any(|(name, _)| *name == CHART) && (self.seeds.len() > 1 || self.trainings() > 1) {
            let (over, but) = match self.trainings() {
                1 => ("sampling seeds", " They do not include the variation between trainings."),
                _ => ("trainings", ""),
            };
            let over = format!("95 % confidence interval of the mean over {over} (Student's t)");
            page.note(&format!("Bands: {over}, cut below a tenth of the mean.{but}"));
        }
        self.class_page(&mut page);
        self.tests_of(&mut page);
        self.sheets_of(&mut page, dir);
        self.settings_of(&mut page);
        page.finish()
    }

    pub(super) fn table_of(&self, page: &mut Page) {
        let columns = self.columns.iter().map(|n| format!("{n} {}", self.columns_are));
        let head: Vec<String> = std::iter::once(String::new()).chain(columns).collect();
        let rows = self.rows.iter().map(|row| {
            let cells = row.entries.iter().zip(&self.columns).map(|(entry, column)| match entry {
                None => Td::new("–"),
                Some(entry) => {
                    let (text, marks) = self.shown(entry, *column);
                    Td::marked(text, entry.best && entry.mean.is_some(), marks)
                }
            });
            std::iter::once(Td::new(&row.label)).chain(cells).collect()
        });
        page.table(&head, rows.collect());
        page.note(&self.caption());
    }

    fn tests_of(&self, page: &mut Page) {
        let mut rows = vec![];
        for row in &self.rows {
            for entry in row.entries.iter().flatten() {
                let versus = match &entry.versus {
                    Some(versus) => format!("{} ({})", p_value(versus.p), versus.row),
                    None => "–".into(),
                };
                let interval = entry
                    .spread
                    .as_ref()
                    .map_or("–".into(), |s| format!("{} to {}", number(s.interval[0]), number(s.interval[1])));
                let of_seed = |values: &Vec<(String, f64)>| {
                    let is_tabled = |name: &String| self.tabled().is_some_and(|tabled| tabled.name == name);
                    let (first, more): (Vec<_>, Vec<_>) = values.iter().partition(|(name, _)| is_tabled(name));
                    let more = more.iter().filter(|(name, _)| !self.is_of_class(name));
                    let more: Vec<_> = more.map(|(name, v)| format!("{name} {}", number(*v))).collect();
                    let first = first.first().map_or(String::new(), |(_, value)| number(*value));
                    if more.is_empty() { first } else { format!("{first} ({})", more.join(", ")) }
                };
                let mut values = String::new();
                for (i, value) in entry.values.iter().map(of_seed).enumerate() {
                    let same = i > 0 && entry.train_seeds[i] == entry.train_seeds[i - 1];
                    values += if same {
                        "  "
                    } else if i > 0 {
                        "  |  "
                    } else {
                        ""
                    };
                    values += &value;
                }
                rows.push(vec![
                    Td::new(&row.label),
                    Td::new(entry.sample.sampler.name()),
                    Td::new(entry.sample.grid.kind.argument()),
                    Td::new(entry.sample.steps.to_string()),
                    Td::new(entry.nfe.to_string()),
                    Td::new(values),
                    Td::new(interval),
                    Td::new(versus),
                    Td::new(format!("{:.1} s", entry.seconds)),
                ]);
            }
        }
        page.heading("Every measurement");
        let head =
            ["", "sampler", "grid", "steps", "evaluations", "by seed", "95 % interval", "p (Welch, against)", "time"];
        page.table(&head.map(String::from), rows);
        let bars = if self.trainings() > 1 { " Bars divide the seeds of different trainings." } else { "" };
        page.note(&format!("Time: making and evaluating the images of one seed.{bars}"));
    }

    fn sheets_of(&self, page: &mut Page, dir: &StudyDir) {
        page.heading("Images");
        page.note(&format!("The first images of seed {}, from the same noise in every sheet.", self.seeds[0]));
        for row in &self.rows {
            for (entry, column) in row.entries.iter().zip(&self.columns) {
                let Some(entry) = entry else { continue };
                // Sheets are illustrations: a missing one is left out.
                let path = dir.sheet(&entry.sheet);
                let Ok(png) = limits::read(&path, &limits::IMAGE_FILE) else { continue };
                let Ok(Image { width, .. }) = Image::decode(&png, &path) else { continue };
                let caption = format!("{}, {column} {}", row.label, self.columns_are);
                page.picture(&png, width, (540 / width).max(1), &caption);
            }
        }
    }

    fn settings_of(&self, page: &mut Page) {
        page.heading("How it was made");
        let revisions = self.record.revisions.iter().map(|(name, revision)| format!("{name} {revision}"));
        let mut facts = vec![
            ("program".to_string(), format!("crossfade {}", self.version)),
            ("revisions".into(), revisions.collect::<Vec<_>>().join(", ")),
            ("images per measurement".into(), self.count.to_string()),
            ("trainings per model".into(), self.trainings().to_string()),
            ("sampling seeds".into(), self.seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            ("weights".into(), "moving average".into()),
            ("reference".into(), self.record.reference.clone()),
        ];
        facts.extend(self.facts.iter().cloned());
        page.table(&[], facts.into_iter().map(|(key, fact)| vec![Td::new(key), Td::fact(fact)]).collect());
        page.heading("Models");
        let head = ["", "parameters", "steps", "training", "weights", "checkpoint sha256", "configuration sha256"];
        let known = || self.identities.iter().flatten();
        let row = |identity: &Identity| {
            vec![
                Td::new(&identity.name),
                Td::new(identity.parameters.to_string()),
                Td::new(identity.step.to_string()),
                Td::new(identity.seconds.map_or("–".into(), |s| format!("{:.1} min", s / 60.0))),
                Td::new(&identity.checksum),
                Td::fact(&identity.checkpoint),
                Td::fact(&identity.fingerprint),
            ]
        };
        page.table(&head.map(String::from), known().map(row).collect());
        for identity in known() {
            page.folded(&format!("configuration of {}", identity.name), &identity.config);
        }
        // The study was read from TOML, so writing it cannot fail; if it did, the report would only lack this section.
        if let Ok(study) = toml::to_string(&self.record.study) {
            page.folded("the study", &study);
        }
    }
}

fn p_value(p: f64) -> String {
    if p < 1e-3 { format!("{p:.0e}") } else { format!("{p:.3}") }
}
