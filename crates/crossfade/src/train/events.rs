//! Event files for TensorBoard: the scalars of the log, and the sample sheets.
//!
//! The format is encoded by hand: a record is a length and its bytes, each followed by a masked CRC-32C, and the bytes
//! are a few fields of protocol buffers. The available crates would add a protobuf compiler or runtime to replace these
//! ninety lines.
use crate::data::Image;
use crate::error::{Error, Result};
use crate::files::Folder;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The event file of a run, which is created with the first event.
pub struct Events {
    folder: PathBuf,
    /// Steps that were done before this file.
    first_step: u64,
    open: Option<(PathBuf, File)>,
}

impl Events {
    /// The events of a run that has done `step` steps; they go to a new file in `folder`.
    pub fn new(folder: &Path, step: u64) -> Self {
        Self { folder: folder.to_path_buf(), first_step: step, open: None }
    }

    /// Writes the scalars of a step.
    pub(crate) fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        let mut summary = vec![];
        for (tag, value) in values {
            let mut one = vec![];
            field(&mut one, 1, tag.as_bytes());
            one.push(2 << 3 | 5);
            one.extend((*value as f32).to_le_bytes());
            field(&mut summary, 1, &one);
        }
        self.write(step, 5, &summary)
    }

    /// Writes an image of a step; `png` is the same image encoded.
    pub fn image(&mut self, step: u64, tag: &str, image: &Image, png: &[u8]) -> Result<()> {
        let mut encoded = vec![];
        for (number, value) in [(1, image.height), (2, image.width), (3, image.channels)] {
            number_field(&mut encoded, number, value as u64);
        }
        field(&mut encoded, 4, png);
        let (mut one, mut summary) = (vec![], vec![]);
        field(&mut one, 1, tag.as_bytes());
        field(&mut one, 4, &encoded);
        field(&mut summary, 1, &one);
        self.write(step, 5, &summary)
    }

    fn write(&mut self, step: u64, number: u8, content: &[u8]) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        let Some((path, file)) = &mut self.open else { return Ok(()) };
        file.write_all(&record(&event(step, number, content))).map_err(Error::io(path))
    }

    /// Creates a new file. As with SummaryWriter's `purge_step`, its first events make TensorBoard discard the events of an
    /// interrupted run for the steps that are now repeated.
    fn create(&self) -> Result<(PathBuf, File)> {
        let _folder = Folder::create(&self.folder)?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        // TensorBoard reads files in the order of their names, so the time is the first part of the name that varies.
        let name = |n: u32| format!("events.out.tfevents.{seconds}.{:010}.{n}.crossfade", self.first_step);
        let is_resumed = std::fs::read_dir(&self.folder).is_ok_and(|mut files| files.next().is_some());
        let mut n = 0;
        // Two runs may start in the same second; `create_new` makes sure that neither overwrites the file of the other.
        let (path, mut file) = loop {
            let path = self.folder.join(name(n));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => n += 1,
                Err(e) => return Err(Error::io(path)(e)),
            }
        };
        let mut head = record(&event(self.first_step + 1, 3, b"brain.Event:2"));
        if is_resumed {
            let mut start = vec![];
            number_field(&mut start, 1, 1);
            head.extend(record(&event(self.first_step + 1, 7, &start)));
        }
        file.write_all(&head).map_err(Error::io(&path))?;
        Ok((path, file))
    }
}

/// An Event: wall_time = 1, step = 2, and `content` as field `number` (file_version = 3, summary = 5, session_log = 7).
fn event(step: u64, number: u8, content: &[u8]) -> Vec<u8> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    let mut bytes = vec![1 << 3 | 1];
    bytes.extend(time.to_le_bytes());
    number_field(&mut bytes, 2, step);
    field(&mut bytes, number, content);
    bytes
}

/// Appends a length-delimited field: text, bytes or a message.
fn field(to: &mut Vec<u8>, number: u8, content: &[u8]) {
    to.push(number << 3 | 2);
    varint(to, content.len() as u64);
    to.extend_from_slice(content);
}

/// Appends an integer field.
fn number_field(to: &mut Vec<u8>, number: u8, value: u64) {
    to.push(number << 3);
    varint(to, value);
}

/// Appends an integer with seven bits per byte, the lowest first.
fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A TFRecord: the length, its checksum, the bytes, their checksum.
fn record(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    [&length, &masked_crc(&length).to_le_bytes()[..], bytes, &masked_crc(bytes).to_le_bytes()].concat()
}

/// CRC-32C, rotated and offset as TensorFlow does.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Reads the records of a file and checks their checksums.
    fn records(path: &Path) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(path).unwrap();
        let (mut at, mut found) = (0, vec![]);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            assert_eq!(word(at + 8), masked_crc(&bytes[at..at + 8]));
            let content = &bytes[at + 12..at + 12 + length];
            assert_eq!(word(at + 12 + length), masked_crc(content));
            found.push(content.to_vec());
            at += 16 + length;
        }
        found
    }

    #[test]
    fn checksums_are_those_of_tensorflow() {
        // CRC-32C of "123456789", and the head that SummaryWriter begins a file with: a length of 24.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc(&24u64.to_le_bytes()), u32::from_le_bytes([0xa3, 0x7f, 0x4b, 0x22]));
    }

    #[test]
    fn a_resumed_run_begins_a_file_that_purges_the_lost_steps() {
        let dir = tempfile::tempdir().unwrap();
        let mut events = Events::new(dir.path(), 0);
        events.scalars(1, &[("loss", 0.5), ("lr", 1e-4)]).unwrap();
        events.image(300, "samples", &Image::new(1, 1, 1, vec![7]), b"png").unwrap();
        drop(events);
        drop(Events::new(dir.path(), 300));
        let mut events = Events::new(dir.path(), 300);
        events.scalars(301, &[("loss", 0.25)]).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), 2, "without events there is no file");
        let (first, second) = (records(&files[0]), records(&files[1]));
        // From the step on; the nine bytes before it are the time.
        let rest = |record: &Vec<u8>| record[9..].to_vec();
        assert_eq!(rest(&first[0]), [&[2 << 3, 1, 3 << 3 | 2, 13], &b"brain.Event:2"[..]].concat());
        let loss = [&[10, 11, 10, 4], &b"loss"[..], &[21], &0.5f32.to_le_bytes()].concat();
        let lr = [&[10, 9, 10, 2], &b"lr"[..], &[21], &1e-4f32.to_le_bytes()].concat();
        assert_eq!(rest(&first[1]), [&[16, 1, 42, 24][..], &loss, &lr].concat());
        assert_eq!(rest(&first[2])[..3], [16, 0xac, 0x02], "300 takes two bytes");
        assert_eq!(rest(&second[1]), [16, 0xad, 0x02, 7 << 3 | 2, 2, 8, 1], "SessionLog START at step 301");
        assert_eq!(second.len(), 3);
    }
}
