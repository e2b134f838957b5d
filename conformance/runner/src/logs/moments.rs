//! The lines of the driver's and the kernel's log with their moments on the clock of the trace, for the timeline of a
//! report. Reads and writes the files of one worker's directory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use harness::kernel_log::Message;
use serde::{Deserialize, Serialize};

/// The file, with an object of JSON on each line.
pub const FILE: &str = "moments.jsonl";

/// The most lines of the driver's log, and the most bytes of it.
const LINES: usize = 1000;
const BYTES: u64 = 1 << 20;

/// The most characters of a line.
const WIDTH: usize = 300;

/// The program that printed a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Printer {
    Driver,
    Kernel,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// On the clock of the trace.
    pub t_ms: f64,
    pub of: Printer,
    pub text: String,
}

/// Writes the file. `zero` is the moment at which the trace began, in milliseconds since boot.
///
/// # Errors
/// When the driver's log cannot be read, or the file cannot be written.
pub fn write(directory: &Path, messages: &[Message], zero: f64) -> std::io::Result<()> {
    let of_kernel = messages.iter().map(|message| Moment {
        t_ms: message.micros as f64 / 1e3 - zero,
        of: Printer::Kernel,
        text: cut(&message.text),
    });
    let mut moments = of_driver(directory, zero)?;
    moments.extend(of_kernel);
    let lines: Result<Vec<String>, _> = moments.iter().map(serde_json::to_string).collect();
    let text: String = lines?.into_iter().map(|line| line + "\n").collect();
    super::keep(directory, FILE, &text)?;
    discard(directory);
    Ok(())
}

/// Removes what the harness has noted, where it is in the new file or is of no use.
pub fn discard(directory: &Path) {
    // If it stays, it is only one file too many.
    drop(std::fs::remove_file(directory.join(TIMES)));
}

/// The lines of a file that is there, as far as they can be read.
pub fn read(directory: &Path) -> Vec<Moment> {
    let Ok(file) = File::open(directory.join(FILE)) else { return vec![] };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

/// The moments of the driver's log, which the harness notes.
const TIMES: &str = "driver.times";

fn of_driver(directory: &Path, zero: f64) -> std::io::Result<Vec<Moment>> {
    let Ok(times) = std::fs::read_to_string(directory.join(TIMES)) else { return Ok(vec![]) };
    let noted = times.lines().filter_map(|line| {
        let (at, position) = line.split_once(' ')?;
        Some((position.parse::<u64>().ok()?, at.parse::<f64>().ok()? - zero))
    });
    let noted: Vec<(u64, f64)> = noted.collect();
    let mut bytes = Vec::new();
    File::open(directory.join("driver.log"))?.take(BYTES).read_to_end(&mut bytes)?;
    let (mut position, mut moments) = (0, Vec::new());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let begun = noted.partition_point(|(at, _)| *at <= position);
        let text = String::from_utf8_lossy(line);
        if let Some((_, t_ms)) = begun.checked_sub(1).and_then(|index| noted.get(index))
            && !text.trim().is_empty()
        {
            moments.push(Moment { t_ms: *t_ms, of: Printer::Driver, text: cut(text.trim_end()) });
        }
        if moments.len() == LINES {
            break;
        }
        position += line.len() as u64;
    }
    Ok(moments)
}

fn cut(text: &str) -> String {
    text.chars().take(WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_logs_have_their_moments() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("driver.log"), "one\ntwo\n\nthree and half").unwrap();
        // The second part was read in the middle of the second line.
        std::fs::write(directory.path().join(TIMES), "1010.5 0\n1020.5 6\n1030.5 9\nhalf a li").unwrap();
        let message = Message { sequence: 7, micros: 1_015_000, level: 4, text: "loop0: lost".to_owned() };
        write(directory.path(), &[message], 1000.0).unwrap();
        let moments = read(directory.path());
        let shown: Vec<(f64, &str)> =
            moments.iter().map(|moment| (moment.t_ms, moment.text.as_str())).collect();
        assert_eq!(shown, [(10.5, "one"), (10.5, "two"), (30.5, "three and half"), (15.0, "loop0: lost")]);
        assert_eq!(moments.last().map(|moment| moment.of), Some(Printer::Kernel));
        assert!(!directory.path().join(TIMES).exists());
    }

    #[test]
    fn directory_without_logs_has_no_moments() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &[], 0.0).unwrap();
        assert!(read(directory.path()).is_empty() && !directory.path().join(FILE).exists());
    }
}
