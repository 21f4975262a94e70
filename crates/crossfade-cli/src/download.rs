//! Files that are fetched on request: weights of metrics, models that are not in the program.
use crate::context::Context;
use anyhow::{Context as _, Result, bail};
use crossfade::limits;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reads a file that must have `size` bytes; a longer one is refused without reading all of it.
pub fn read(file: &Path, size: u64) -> Result<Vec<u8>> {
    let longer = || crossfade::Error::file(file, format!("has more than the {size} bytes of the right file"));
    Ok(limits::read_at_most(file, size)?.ok_or_else(longer)?)
}

/// Downloads a file of `size` bytes with the system's curl: two commands do not justify an HTTP client and certificates in the program.
pub fn fetch(url: &str, size: u64, context: &Context) -> Result<Vec<u8>> {
    let options = ["--location", "--fail", "--silent", "--show-error", "--connect-timeout", "20", url];
    let mut child = Command::new("curl")
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting curl, which downloads the file")?;
    let mut fetched = Vec::with_capacity(size as usize);
    if let Some(stdout) = child.stdout.take() {
        let mut progress = context.progress("bytes", size);
        // One byte more than expected is enough to see that it is a different file.
        let (mut reader, mut block) = (stdout.take(size + 1), vec![0; 1 << 16]);
        while let n @ 1.. = reader.read(&mut block)? {
            fetched.extend_from_slice(&block[..n]);
            progress.set(fetched.len() as u64, size);
        }
    }
    // Standard output is closed by now, so curl ends even if it had more to write.
    let output = child.wait_with_output().context("waiting for curl")?;
    if !output.status.success() && fetched.len() as u64 <= size {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(fetched)
}
