//! The logs in the directory of one worker.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use harness::masks::Masks;
use harness::private;

pub mod moments;

/// The logs that a case writes, the most useful first.
pub const FILES: [&str; 6] =
    ["journal.txt", "driver.log", "manager.log", "kernel.log", "worker.log", "trace.jsonl"];

/// Masks secrets in all logs. Returns an error text for each log that could not be rewritten.
pub fn hide_secrets(directory: &Path, masks: &Masks) -> Vec<String> {
    let all = FILES.iter().chain(&["container.log", moments::FILE]);
    let unhidden =
        |file: &&str| masks.hide_in_file(&directory.join(file)).err().map(|error| format!("{file}: {error}"));
    all.copied().filter_map(|file| unhidden(&file)).collect()
}

/// The last lines that a worker wrote outside of its reports, such as a panic at its start.
pub fn last_words(directory: &Path) -> Vec<String> {
    let text = std::fs::read(directory.join("worker.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    lines[lines.len().saturating_sub(10)..].to_vec()
}

/// Writes a text into a worker's directory, unless the text is empty.
pub fn keep(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    private::write(&directory.join(name), text)
}

/// Whether one of these texts is in a file, which may be larger than memory. `false` if there is no such file.
pub fn contains_any(file: &Path, texts: &[&str]) -> io::Result<bool> {
    contains_any_by(file, texts, 1 << 20)
}

fn contains_any_by(file: &Path, texts: &[&str], chunk: usize) -> io::Result<bool> {
    let Some(longest) = texts.iter().map(|text| text.len()).max() else { return Ok(false) };
    let mut file = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut window = Vec::with_capacity(chunk + longest);
    loop {
        let read = (&mut file).take(chunk as u64).read_to_end(&mut window)?;
        let is_here =
            |text: &&str| !text.is_empty() && window.windows(text.len()).any(|part| part == text.as_bytes());
        if texts.iter().any(is_here) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // The end of this part stays in the window, for a text that goes on in the next part.
        window.drain(..window.len().saturating_sub(longest.saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_across_the_edge_of_a_part_is_found() {
        let file = std::env::temp_dir().join(format!("volproof-logs-{}", std::process::id()));
        std::fs::write(&file, "0123456789secret789").expect("a file");
        for chunk in 1..20 {
            let contains = |texts: &[&str]| contains_any_by(&file, texts, chunk).expect("it can be read");
            assert!(contains(&["other", "secret"]) && contains(&["9"]), "{chunk}");
            assert!(!contains(&["secrets", "x"]) && !contains(&[]) && !contains(&[""]), "{chunk}");
        }
        std::fs::remove_file(&file).expect("it is there");
        assert!(!contains_any(&file, &["x"]).expect("a file that is not there holds nothing"));
    }
}
