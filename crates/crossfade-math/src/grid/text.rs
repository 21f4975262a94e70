//! A grid in one line of text, for the command line, lists in studies, and tables: `uniform-t`,
//! `log-snr:kappa_max=20,kappa_min=0.1`, `explicit:1,0.6,0.2`.
use super::GridKind;

impl GridKind {
    /// Reads a name, which options may follow: `NAME:option=number,…`, and `explicit:` with its times.
    pub fn from_argument(text: &str) -> Result<Self, String> {
        let number =
            |value: &str| value.trim().parse::<f64>().map_err(|e| format!("grid '{text}': {}: {e}", value.trim()));
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        if name == "explicit" {
            let times: Result<Vec<f64>, _> = rest.unwrap_or_default().split(',').map(number).collect();
            return Ok(Self::Explicit { times: times? });
        }
        let mut kind = Self::parse(name).map_err(|e| format!("{e}, explicit:1,0.5,…"))?;
        for assignment in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let (key, value) = assignment
                .split_once('=')
                .ok_or_else(|| format!("grid '{text}': write options as {name}:option=number,…, not '{assignment}'"))?;
            if !kind.set(key.trim(), number(value)?) {
                let known: Vec<_> = kind.options().iter().map(|(key, _)| *key).collect();
                let known =
                    if known.is_empty() { "it has none".into() } else { format!("known: {}", known.join(", ")) };
                return Err(format!("grid '{text}': {name} has no option '{}'; {known}", key.trim()));
            }
        }
        Ok(kind)
    }

    /// The text from which [`GridKind::from_argument`] reads this grid: options with their default values are left out.
    pub fn argument(&self) -> String {
        let defaults = Self::parse(self.name()).map(|kind| kind.options()).unwrap_or_default();
        let options: Vec<String> = match self {
            Self::Explicit { times } => times.iter().map(ToString::to_string).collect(),
            _ => {
                let changed = self.options().into_iter().filter(|option| !defaults.contains(option));
                changed.filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect()
            }
        };
        match options.is_empty() {
            true => self.name().into(),
            false => format!("{}:{}", self.name(), options.join(",")),
        }
    }

    /// The names and values of its options; no value where the process decides.
    fn options(&self) -> Vec<(&'static str, Option<f64>)> {
        match *self {
            Self::Reference { sigma_min } => vec![("sigma_min", Some(sigma_min))],
            Self::Power { rho, sigma_min } => vec![("rho", Some(rho)), ("sigma_min", Some(sigma_min))],
            Self::Karras { rho, kappa_max, kappa_min } => {
                vec![("rho", Some(rho)), ("kappa_max", kappa_max), ("kappa_min", kappa_min)]
            }
            Self::LogSnr { kappa_max, kappa_min, curvature } => {
                vec![("kappa_max", kappa_max), ("kappa_min", kappa_min), ("curvature", curvature)]
            }
            _ => vec![],
        }
    }

    /// Sets an option; false if this grid has none of that name.
    fn set(&mut self, key: &str, value: f64) -> bool {
        match (self, key) {
            (Self::Reference { sigma_min } | Self::Power { sigma_min, .. }, "sigma_min") => *sigma_min = value,
            (Self::Power { rho, .. } | Self::Karras { rho, .. }, "rho") => *rho = value,
            (Self::Karras { kappa_max, .. } | Self::LogSnr { kappa_max, .. }, "kappa_max") => *kappa_max = Some(value),
            (Self::Karras { kappa_min, .. } | Self::LogSnr { kappa_min, .. }, "kappa_min") => *kappa_min = Some(value),
            (Self::LogSnr { curvature, .. }, "curvature") => *curvature = Some(value),
            _ => return false,
        }
        true
    }
}
