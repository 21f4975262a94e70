//! A pipeline with classes: which class an image gets, and what guides the network.
use super::classes::ClassChoice;
use super::{Pipeline, StartNoise};
use crate::config::{RANDOM_CLASS, SampleConfig};
use crate::error::{Error, Result};
use crate::nn::{Conditioned, Guide, Weak, one_hot};

impl Pipeline {
    /// Checks that the settings fit the network, and returns the shape (C, H, W) of x_t.
    pub fn ready(&self) -> Result<[usize; 3]> {
        let size = self.size()?;
        let choice = self.class_choice()?;
        self.check_guidance(choice.as_ref())?;
        Ok(size)
    }

    /// Which class each image gets; none for a network without classes.
    pub(super) fn class_choice(&self) -> Result<Option<ClassChoice>> {
        let class = &self.sample.class;
        if self.class_names.is_empty() {
            if class == RANDOM_CLASS {
                return Ok(None);
            }
            return Err(Error::request(format!(
                "{} was trained without classes and cannot make the class `{class}`: leave the class out, or train a network \
                 with network.classes",
                self.origin()
            )));
        }
        let choice = ClassChoice::parse(class, &self.class_names)?;
        if choice == ClassChoice::None && self.label_dropout == 0.0 {
            let problem = "was trained with train.label_dropout = 0 and never saw an image without its class";
            return Err(Error::request(format!("{} {problem}: give a class", self.origin())));
        }
        Ok(Some(choice))
    }

    /// Guidance needs a weaker prediction: that of the guide, or that of the network without a class.
    fn check_guidance(&self, choice: Option<&ClassChoice>) -> Result<()> {
        let problem = match (self.sample.guidance == 1.0, &self.guide) {
            (true, Some(_)) => "a guide has no effect with a guidance of 1: give another one, for example 2".into(),
            (true, None) | (false, Some(_)) => return Ok(()),
            (false, None) => match choice {
                None => format!(
                    "{} was trained without classes, so that there is nothing to guide it by: give a weaker checkpoint as \
                     guide, or train a network with network.classes",
                    self.origin()
                ),
                Some(ClassChoice::None) => {
                    "guidance moves away from the prediction without a class: give a class".into()
                }
                Some(_) if self.label_dropout == 0.0 => format!(
                    "{} was trained with train.label_dropout = 0: it has no prediction without a class to guide it by. Train \
                     with 0.1, or give a weaker checkpoint as guide",
                    self.origin()
                ),
                Some(_) => return Ok(()),
            },
        };
        Err(Error::request(problem))
    }

    /// The class of an image; none for a network or settings without classes.
    pub fn class_of(&self, seed: u64, start: StartNoise) -> Result<Option<u32>> {
        let choice = self.class_choice()?;
        Ok(choice.and_then(|choice| choice.of(seed, start.index(), self.class_names.len())))
    }

    /// The names of the classes; empty for a network without classes.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// The sampling settings with the class that this image got.
    pub(super) fn sample_config_of(&self, seed: u64, start: StartNoise) -> Result<SampleConfig> {
        let mut sample = self.sample.clone();
        if !self.class_names.is_empty() {
            sample.class = ClassChoice::text(self.class_of(seed, start)?, &self.class_names);
        }
        Ok(sample)
    }

    /// The network for images of these classes, with its guide.
    pub(super) fn of_classes(&self, classes: &[Option<u32>]) -> Result<Conditioned<'_>> {
        let count = self.class_names.len();
        let rows = classes.iter().any(Option::is_some).then(|| one_hot(classes, count, &self.device));
        let guidance = self.sample.guidance();
        let guide = (guidance.scale != 1.0).then(|| {
            let weak = match &self.guide {
                Some(guide) => Weak::Network(Box::new(
                    guide.net.conditioned(None).of_classes(rows.clone().filter(|_| guide.has_classes)),
                )),
                None => Weak::NoClass,
            };
            Guide { guidance, weak }
        });
        Ok(self.conditioned(None)?.of_classes(rows).guided(guide))
    }
}
