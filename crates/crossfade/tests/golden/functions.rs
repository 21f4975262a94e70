//! Functions of given tensors, one case each.
use crate::case::Case;
use crate::{autoencoder, edge};

fn checks(case: &Case) -> Option<fn(&Case) -> Vec<String>> {
    match case.name.as_str() {
        "edge_bce" => Some(edge::cross_entropy),
        "vae_functions" => Some(autoencoder::check_functions),
        _ => None,
    }
}

pub fn check(case: &Case) -> Vec<String> {
    checks(case).map_or_else(Vec::new, |check| check(case))
}

pub fn skips(case: &Case) -> Vec<String> {
    if checks(case).is_some() { vec![] } else { vec!["all".into()] }
}
