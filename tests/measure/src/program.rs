//! A measuring program: its options, and where its rows go.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::Row;

/// The options of a measuring program: `[--rows FILE] [--rounds N] [--peers DIR] [WORD…]`.
///
/// Other options, such as the `--bench` that cargo adds, are ignored.
#[derive(Debug, Default)]
pub struct Program {
    rows: Option<(PathBuf, File)>,
    rounds: Option<usize>,
    peers: Option<PathBuf>,
    words: Vec<String>,
}

impl Program {
    /// The options of this process. The file of rows is opened now: a sandbox that is entered later does not have it.
    ///
    /// # Panics
    /// When the file cannot be opened.
    pub fn start() -> Self {
        Self::parse(std::env::args().skip(1)).expect("the file of rows can be opened")
    }

    fn parse(mut arguments: impl Iterator<Item = String>) -> io::Result<Self> {
        let mut program = Self::default();
        while let Some(word) = arguments.next() {
            match word.as_str() {
                "--rows" => program.rows = arguments.next().map(opened).transpose()?,
                "--peers" => program.peers = arguments.next().map(PathBuf::from),
                "--rounds" => program.rounds = arguments.next().and_then(|number| number.parse().ok()),
                option if option.starts_with('-') => {}
                _ => program.words.push(word),
            }
        }
        Ok(program)
    }

    /// This program once more, in a process of its own: with these words and the same options.
    pub fn again(&self, words: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(words).stdin(Stdio::null());
        if let Some((rows, _)) = &self.rows {
            command.arg("--rows").arg(rows);
        }
        if let Some(rounds) = self.rounds {
            command.args(["--rounds", &rounds.to_string()]);
        }
        if let Some(peers) = &self.peers {
            command.arg("--peers").arg(peers);
        }
        command
    }

    /// The words that are no options: what to measure.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The number of rounds, or this many if none is given.
    pub fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual).max(1)
    }

    /// Whether fewer rounds than these are asked for: then large sizes are left out, too.
    pub fn is_short(&self) -> bool {
        self.rounds.is_some_and(|rounds| rounds < 3)
    }

    /// The file of this name in the directory of peers, if it is there.
    pub fn peer(&self, name: &str) -> Option<PathBuf> {
        Some(self.peers.as_ref()?.join(name)).filter(|path| path.is_file())
    }

    pub fn peers(&self) -> Option<&Path> {
        self.peers.as_deref()
    }

    /// Prints a row, and appends it to the file of rows if there is one.
    ///
    /// # Panics
    /// When the file cannot be written: the measurement would be lost.
    pub fn row(&self, row: &Row) {
        eprintln!("{row}");
        let Some((_, file)) = &self.rows else { return };
        let mut line = serde_json::to_vec(row).expect("a row is made of plain values");
        line.push(b'\n');
        (&mut &*file).write_all(&line).expect("the file of rows can be written");
    }

    /// Says why something is not measured.
    pub fn skipped(&self, subject: &str, reason: &str) {
        eprintln!("skipped: {subject}: {reason}");
    }
}

/// The exit code of a measurement; prints its error.
pub fn ended<E: std::fmt::Display>(measured: Result<(), E>) -> ExitCode {
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn opened(path: String) -> io::Result<(PathBuf, File)> {
    let file = File::options().create(true).append(true).open(&path)?;
    Ok((path.into(), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Program {
        Program::parse(line.split_whitespace().map(str::to_owned)).expect("it can be opened")
    }

    #[test]
    fn options_and_words_are_told_apart() {
        let program = parsed("--rounds 3 many --bench --rows /dev/null --peers /p 100");
        assert_eq!(program.words(), ["many", "100"]);
        assert_eq!(program.rounds(30), 3);
        let again = program.again(&["part"]);
        let arguments: Vec<_> = again.get_args().collect();
        assert_eq!(arguments, ["part", "--rows", "/dev/null", "--rounds", "3", "--peers", "/p"]);
        assert_eq!(program.peers(), Some(Path::new("/p")));
        assert_eq!(parsed("--bench").rounds(30), 30);
    }

    #[test]
    fn row_is_a_line_of_the_file() {
        let directory = tempfile::tempdir().expect("there is a directory for temporary files");
        let path = directory.path().join("rows");
        let program = parsed(&format!("--rows {}", path.display()));
        let rows = [Row::new("a", "b", "ms", &[1.0]), Row::new("c", "d", "ms", &[2.0]).floor(&[1.0])];
        rows.iter().for_each(|row| program.row(row));
        let text = std::fs::read_to_string(path).expect("it was written");
        let read: Vec<Row> =
            text.lines().map(|line| serde_json::from_str(line).expect("it is a row")).collect();
        assert_eq!(read, rows);
    }
}
