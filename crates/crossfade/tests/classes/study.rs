//! Guidance as rows of a study.
use super::small;
use crossfade::study::Plan;
use std::path::Path;

fn plan(dir: &Path, set: &str, rows: &str) -> crossfade::Result<Plan> {
    std::fs::write(dir.join("base.toml"), small().to_toml().unwrap()).unwrap();
    let study = format!(
        "title = \"Guidance\"\nbase = \"base.toml\"\nset = [{set}]\n[[model]]\nname = \"a\"\n\
         [sample]\n{rows}\nevaluations = [6]\ncount = 8\n[evaluate]\nmetric = \"none\"\n"
    );
    std::fs::write(dir.join("study.toml"), study).unwrap();
    Plan::open::<&str>(&dir.join("study.toml"), &[], None)
}

/// In a column of six evaluations a guided sampler makes half as many steps.
#[test]
fn each_weight_of_guidance_is_a_row_within_its_evaluations() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), "", "guidance = [1.0, 1.5]").unwrap();
    let found: Vec<_> = plan
        .rows()
        .iter()
        .map(|row| {
            let sample = row.sampling(&plan.models[0].config, &plan.study, 6).unwrap().unwrap();
            let evaluations = sample.evaluations(&plan.models[0].config.process).unwrap();
            (row.label.clone(), sample.guidance, sample.steps, evaluations)
        })
        .collect();
    assert_eq!(found, [("a, guidance 1".into(), 1.0, 6, 6), ("a, guidance 1.5".into(), 1.5, 3, 6)]);
}

#[test]
fn guidance_that_would_be_refused_after_training_is_refused_before() {
    let dir = tempfile::tempdir().unwrap();
    let error = |set: &str, rows: &str| plan(dir.path(), set, rows).err().unwrap().to_string();
    let without_dropout = error("\"train.label_dropout=0\"", "guidance = [2.0]");
    assert!(without_dropout.contains("model a") && without_dropout.contains("label_dropout"), "{without_dropout}");
    let without_classes = error("\"network.classes=0\", \"train.label_dropout=0.1\"", "guidance = [2.0]");
    assert!(without_classes.contains("network.classes"), "{without_classes}");
    assert!(error("", "guidance = [1.0, 1.0]").contains("distinct"));
    assert!(error("", "guidance = [-1.0]").contains("from 0"));
}
