//! The lines of a journal in a file, as they are made: of a limited size, if that is wanted, and with a limited number of
//! earlier files beside it. Writes these files and nothing else.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use contracts::event::TraceLine;
use contracts::recording;

use super::report::{ReportError, value};
use crate::masks::Masks;
use crate::private;

/// The limits of the kept files.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The bytes of one file; the line that goes beyond them is its last.
    pub bytes: u64,
    /// The files before the one that is written: `FILE.1` is the newest of them.
    pub earlier: usize,
}

/// The file that is written.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    file: File,
    written: u64,
    limits: Option<Limits>,
}

impl Kept {
    pub(super) fn create(path: &Path, limits: Option<Limits>) -> Result<Self, ReportError> {
        // The file of an earlier process is kept beside the new one.
        if let Some(limits) = limits.filter(|_| fs::metadata(path).is_ok_and(|found| found.len() > 0)) {
            shift(path, limits.earlier);
        }
        let failed = |source| ReportError { path: path.to_owned(), source };
        let mut file = private::create(path).map_err(failed)?;
        let header = recording::header();
        writeln!(file, "{header}").map_err(failed)?;
        Ok(Self { path: path.to_owned(), file, written: header.len() as u64 + 1, limits })
    }

    /// One line, one write: if this process is killed, the file has whole lines.
    pub(super) fn append(&mut self, line: &TraceLine, masks: &Masks) {
        let mut text = value(line, masks).to_string();
        text.push('\n');
        // A full disk must not stop what is being watched; the report at the end will say so.
        let _ = self.file.write_all(text.as_bytes());
        self.written += text.len() as u64;
        if let Some(limits) = self.limits.filter(|limits| self.written >= limits.bytes)
            && let Ok(next) = Self::create(&self.path, Some(limits))
        {
            *self = next;
        }
    }
}

/// Gives each file the name of the one before it; the oldest goes.
fn shift(path: &Path, earlier: usize) {
    let numbered = |number: usize| match number {
        0 => path.to_owned(),
        _ => PathBuf::from(format!("{}.{number}", path.display())),
    };
    for number in (0..earlier).rev() {
        // There may be fewer.
        let _ = fs::rename(numbered(number), numbered(number + 1));
    }
}

#[cfg(test)]
mod tests {
    use contracts::event::Event;

    use super::*;

    #[test]
    fn files_are_of_one_size_and_so_many() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace.jsonl");
        let limits = Limits { bytes: 400, earlier: 2 };
        let mut kept = Kept::create(&path, Some(limits)).expect("it can be written");
        for seq in 1..200 {
            kept.append(&TraceLine { seq, t_ms: 0.0, event: Event::Looked }, &Masks::default());
        }
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .expect("it is there")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.2"]);
        for name in names {
            let text = fs::read_to_string(directory.path().join(name)).expect("it is a text");
            assert!(text.starts_with(&recording::header()) && text.len() < 500, "{text}");
        }
        // Another process goes on, and what was there is the newest of those before.
        let newest = fs::read(&path).expect("it is there");
        drop(Kept::create(&path, Some(limits)).expect("it can be written"));
        assert_eq!(fs::read(directory.path().join("trace.jsonl.1")).expect("it is there"), newest);
    }
}
