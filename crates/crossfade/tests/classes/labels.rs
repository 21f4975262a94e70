//! Labels of every kind of dataset.
use crossfade::data::{Classes, DataConfig, Image, Split, check};
use std::fs;
use std::io::Write;
use std::path::Path;

fn png() -> Vec<u8> {
    Image::new(2, 2, 3, vec![9; 12]).encode_png(&[]).unwrap()
}

fn classes(config: &DataConfig) -> crossfade::Result<Option<Classes>> {
    // Through `open`, as training does.
    config.open(8, 3).unwrap().classes()
}

fn named(names: &[&str], of: &[u32]) -> Classes {
    Classes { names: names.iter().map(ToString::to_string).collect(), of: of.to_vec() }
}

fn folder(path: &Path) -> DataConfig {
    DataConfig::Folder { path: path.into(), fit: Default::default(), filter: Default::default() }
}

#[test]
fn folders_are_classes_where_there_is_one_for_each() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["dogs/b.png", "cats/deep/x.png", "dogs/a.png"] {
        fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
        fs::write(dir.path().join(file), png()).unwrap();
    }
    assert_eq!(classes(&folder(dir.path())).unwrap().unwrap(), named(&["cats", "dogs"], &[0, 1, 1]));
    let report = check(&folder(dir.path()), &mut |_, _| ()).unwrap();
    assert_eq!(report.classes, [("cats".to_string(), 1), ("dogs".to_string(), 2)]);
    let text = report.to_string();
    assert!(text.contains("classes: 2 (network.classes = 2)") && text.contains("dogs: 2"), "{text}");
    fs::write(dir.path().join("alone.png"), png()).unwrap();
    assert_eq!(classes(&folder(dir.path())).unwrap(), None);
}

fn zip(entries: &[(&str, &[u8])], path: &Path) -> DataConfig {
    let mut writer = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, bytes) in entries {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
    DataConfig::Zip { path: path.into(), fit: Default::default(), filter: Default::default() }
}

#[test]
fn the_labels_of_a_zip_are_edms() {
    let dir = tempfile::tempdir().unwrap();
    let (png, path) = (png(), dir.path().join("set.zip"));
    let labelled =
        |json: &str| classes(&zip(&[("00/b.png", &png), ("00/a.png", &png), ("dataset.json", json.as_bytes())], &path));
    let edm = labelled(r#"{"labels": [["00/b.png", 2], ["00\\a.png", 0]]}"#).unwrap().unwrap();
    assert_eq!(edm, named(&["0", "1", "2"], &[0, 2]));
    let names = r#""classes": ["x", "y"], "styles": [["00/a.png", "flat"]]"#;
    let with_names = labelled(&format!(r#"{{"labels": [["00/b.png", 1], ["00/a.png", 0]], {names}}}"#));
    assert_eq!(with_names.unwrap().unwrap(), named(&["x", "y"], &[0, 1]));
    assert_eq!(labelled(r#"{"labels": null}"#).unwrap(), None);
    for (json, problem) in [
        (r#"{"labels": [["00/b.png", 1]]}"#, "no label of 00/a.png"),
        (r#"{"labels": [["00/b.png", 0.5], ["00/a.png", 0]]}"#, "whole numbers"),
        (r#"{"labels": [["00/b.png", 2], ["00/a.png", 0]], "classes": ["x", "y"]}"#, "class 2"),
        ("{", "dataset.json"),
    ] {
        let error = labelled(json).err().unwrap().to_string();
        assert!(error.contains("set.zip") && error.contains(problem), "{error}");
    }
    let folders = classes(&zip(&[("q/b.png", &png), ("p/a.png", &png)], &path)).unwrap().unwrap();
    assert_eq!(folders, named(&["p", "q"], &[0, 1]));
}

#[test]
fn idx_labels_lie_beside_the_images() {
    let dir = tempfile::tempdir().unwrap();
    let images = [[0, 0, 8, 3].to_vec(), [3u32, 1, 1].map(u32::to_be_bytes).concat(), vec![7; 3]].concat();
    fs::write(dir.path().join("train-images-idx3-ubyte"), images).unwrap();
    let config = DataConfig::Idx { path: dir.path().into() };
    assert_eq!(classes(&config).unwrap(), None);
    let file = |count: u32, labels: &[u8]| [vec![0, 0, 8, 1], count.to_be_bytes().to_vec(), labels.to_vec()].concat();
    let path = dir.path().join("train-labels-idx1-ubyte.gz");
    fs::write(&path, file(3, &[2, 0, 1])).unwrap();
    assert_eq!(classes(&config).unwrap().unwrap(), named(&["0", "1", "2"], &[2, 0, 1]));
    for (bytes, problem) in [
        (file(2, &[2, 0]), "holds 2 labels, but there are 3 images"),
        (file(3, &[2, 0]), "3 images"),
        (b"nonsense".to_vec(), "not an IDX file"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = classes(&config).err().unwrap().to_string();
        assert!(error.contains("train-labels-idx1-ubyte.gz") && error.contains(problem), "{error}");
    }
}

#[test]
fn cifar_records_begin_with_their_labels() {
    let dir = tempfile::tempdir().unwrap();
    let record = |label: u8| [vec![label], vec![1; 3072]].concat();
    fs::write(dir.path().join("data_batch_1.bin"), [record(3), record(9)].concat()).unwrap();
    fs::write(dir.path().join("data_batch_2.bin"), record(0)).unwrap();
    let found = classes(&DataConfig::Cifar10 { path: dir.path().into(), split: Split::Train }).unwrap().unwrap();
    assert_eq!(found.of, [3, 9, 0]);
    assert_eq!((found.names[3].as_str(), found.names[9].as_str(), found.names.len()), ("cat", "truck", 10));
}

#[test]
fn procedural_images_have_the_class_of_their_palette() {
    let set = DataConfig::Procedural { seed: 4, len: 300 }.open(16, 3).unwrap();
    let found = set.classes().unwrap().unwrap();
    assert_eq!((found.names.len(), found.of.len()), (6, 300));
    assert!(found.counts().iter().all(|&count| count > 20), "{:?}", found.counts());
    // Nights are dark, and roses are bright.
    let brightness = |name: &str| {
        let class = found.names.iter().position(|n| n == name).unwrap() as u32;
        let chosen: Vec<_> = (0..300).filter(|&k| found.of[k] == class).map(|k| set.get(k).unwrap()).collect();
        let sum: f64 = chosen.iter().flat_map(|image| &image.pixels).map(|&v| f64::from(v)).sum();
        sum / chosen.len() as f64
    };
    assert!(brightness("night") < 0.7 * brightness("rose"));
}
