//! Pictures and the recipes inside them.
use super::containers::{kind, mended_png, parts};
use super::scratch::{accepted, file, refused};
use crossfade::config::RunConfig;
use crossfade::data::{Image, Image16, LabelMap, dimensions, png_text};
use crossfade::generate::{EditRecipe, Recipe};
use crossfade::limits;

/// Larger pictures are only measured, because decoding them would take most of the time.
const PIXELS: usize = 1 << 16;

/// A PNG: as it is, and with the right checksums.
pub fn png(input: &[u8]) {
    match kind(input, 2) {
        (0, raw) => decode(raw),
        (_, rest) => decode(&mended_png(rest)),
    }
}

/// A JPEG or WebP: as it is, and with the right length of a RIFF file.
pub fn photo(input: &[u8]) {
    match kind(input, 2) {
        (0, raw) => decode(raw),
        (_, rest) => {
            let mut bytes = rest.to_vec();
            let length = (bytes.len().saturating_sub(8) as u32).to_le_bytes();
            if let Some(place) = bytes.get_mut(4..8).filter(|_| rest.starts_with(b"RIFF")) {
                place.copy_from_slice(&length);
            }
            decode(&bytes);
        }
    }
}

/// Every reader of pictures says the same about `bytes`.
fn decode(bytes: &[u8]) {
    let name = "fuzz.png";
    if let Some(texts) = accepted(png_text(bytes, name)) {
        let all: usize = texts.iter().map(|(_, text)| text.len()).sum();
        // Texts that are not packed are as long as they are in the file.
        assert!(all <= limits::PNG_TEXT.size() + 4 * bytes.len(), "{all} bytes of text");
    }
    let Some((width, height)) = accepted(dimensions(bytes, name)) else {
        assert!(Image::decode(bytes, name).is_err(), "a picture without dimensions");
        return;
    };
    assert!(width * height > 0 && (width * height) as u64 <= limits::IMAGE_PIXELS.max);
    if width * height > PIXELS {
        return;
    }
    let decoded = (Image::decode(bytes, name), Image16::decode(bytes, name), LabelMap::decode(bytes, name));
    let (Ok(image), Ok(deep), Ok(map)) = &decoded else {
        let errors = [decoded.0.err(), decoded.1.err(), decoded.2.err()];
        assert!(errors.iter().all(Option::is_some), "readable in one way only: {errors:?}");
        return errors.iter().flatten().for_each(refused);
    };
    // Its orientation may turn a picture.
    let sizes = [(image.width, image.height), (deep.width, deep.height), (map.width, map.height)];
    assert!(sizes.iter().all(|size| *size == (width, height) || *size == (height, width)), "{sizes:?}");
    assert_eq!((image.channels, image.pixels.len()), (deep.channels, width * height * deep.channels));
    if !deep.deep && deep.alpha.is_none() {
        assert_eq!(deep.to_image(), *image, "8 bits are the same in both ways");
    }
    let again = Image::decode(&image.encode_png(&[("key", "tëxt")]).unwrap(), name).unwrap();
    assert_eq!(again, *image, "a picture changes when it is written");
}

/// A recipe: the JSON of one (kind 1) or of an edit (kind 2) in a PNG, or a PNG as it is.
pub fn recipe(input: &[u8]) {
    let (kind, rest) = kind(input, 3);
    let bytes = if kind == 0 {
        rest.to_vec()
    } else {
        let text = String::from_utf8_lossy(parts(rest, 1)[0]).into_owned();
        let keyword = if kind == 1 { "crossfade" } else { "crossfade-edit" };
        let Ok(bytes) = Image::new(2, 1, 1, vec![3, 200]).encode_png(&[(keyword, &text)]) else { return };
        bytes
    };
    let path = file("recipe/a.png", &bytes);
    if let Some((found, _)) = accepted(Recipe::read(&path)) {
        let png = found.png(&Image::new(1, 1, 1, vec![0])).expect("what was read can be written");
        let (again, _) = Recipe::read(&file("recipe/b.png", &png)).expect("what was written can be read");
        assert_eq!(found, again, "a recipe changes when it is written");
        settings(&found.sample);
    }
    if let Some((found, _)) = accepted(EditRecipe::read(&path)).flatten() {
        let png = found.png(&Image::new(1, 1, 1, vec![0])).expect("what was read can be written");
        let again = EditRecipe::read(&file("recipe/c.png", &png)).expect("what was written can be read");
        assert_eq!(again.map(|(recipe, _)| recipe).as_ref(), Some(&found), "a recipe changes when it is written");
        settings(&found.sample);
    }
}

/// The settings of a recipe with some network: refused, or usable.
fn settings(sample: &crossfade::SampleConfig) {
    let run = RunConfig { sample: sample.clone(), ..RunConfig::default() };
    if accepted(run.validate()).is_some() {
        super::weights::check_config(&run);
        accepted(sample.evaluations(&run.process));
    }
}
