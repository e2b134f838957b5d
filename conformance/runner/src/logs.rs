//! The directory of one worker: the logs that are written there, and what is read from them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The last lines a worker wrote outside its reports: a panic before it could say anything.
pub fn last_words(directory: &Path) -> Vec<String> {
    let text = std::fs::read(directory.join("worker.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    lines[lines.len().saturating_sub(10)..].to_vec()
}

/// Writes a text into a worker's directory, if there is any.
pub fn keep(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    File::create(directory.join(name))?.write_all(text.as_bytes())
}
