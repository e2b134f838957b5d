//! The output of a driver, kept in one file with a limited size: of a longer output the first and the last part are kept.
//!
//! The driver writes to a pipe, which a thread empties into the file: a driver must neither wait for the runtime of the
//! harness nor fill the machine's disk.
//!
//! Beside the log, `driver.times` has the moment at which each part of it was read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{clock, private};

/// Most bytes that are kept.
pub(super) const LIMIT: u64 = 64 << 20;

/// The bytes of one read.
const CHUNK: usize = 64 << 10;

/// Most bytes that one look takes from the pipe, so that a driver that prints without end does not block the reader.
const TURN: usize = 1 << 20;

/// Most moments that are noted.
const MOMENTS: u32 = 4096;

/// The bytes at the end that explain most failures.
const END: u64 = 64 << 10;

/// Bytes that a driver printed and that are not in its log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Those beyond the limit of the log.
    pub beyond_limit: u64,
    /// Those that the disk had no room for.
    pub unwritten: u64,
}

/// A driver's log, also while the driver writes it.
#[derive(Debug)]
pub(super) struct Log {
    sink: Arc<Mutex<Sink>>,
}

#[derive(Debug)]
struct Sink {
    path: PathBuf,
    /// The first part, and in the end all that is kept.
    file: File,
    /// The moments of the first part: a line `MILLISECONDS POSITION` for the bytes from this position on.
    times: File,
    noted: u32,
    /// The bytes of the first part.
    position: u64,
    /// The bytes that may still be added to the first part.
    room: u64,
    /// The most bytes of each half of the last part.
    half: u64,
    /// The last part, in files without a name: the older half, then the younger one.
    last: Option<[File; 2]>,
    /// Bytes in the younger half.
    filled: u64,
    lost: Lost,
    /// The ends of the pipes that are still open for reading.
    pipes: Vec<OwnedFd>,
}

impl Log {
    /// Opens the log; earlier output stays in it.
    pub(super) fn open(path: &Path) -> io::Result<Log> {
        Log::with_limit(path, LIMIT)
    }

    fn with_limit(path: &Path, limit: u64) -> io::Result<Log> {
        let file = private::append(path)?;
        let position = file.metadata()?.len();
        let sink = Sink {
            times: private::append(&path.with_extension("times"))?,
            noted: 0,
            position,
            room: (limit / 2).saturating_sub(position),
            half: limit / 4,
            path: path.to_owned(),
            file,
            last: None,
            filled: 0,
            lost: Lost::default(),
            pipes: vec![],
        };
        Ok(Log { sink: Arc::new(Mutex::new(sink)) })
    }

    /// An end to print to.
    pub(super) fn pipe(&self) -> io::Result<OwnedFd> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        // Only on the reading end: a driver does not expect EAGAIN from a full pipe.
        nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let watched = reader.try_clone()?;
        self.sink().pipes.push(reader);
        let sink = Arc::clone(&self.sink);
        std::thread::Builder::new().name("driver-log".to_owned()).spawn(move || {
            while wait(&watched) {
                lock(&sink).empty();
            }
        })?;
        Ok(writer)
    }

    /// The last lines that were printed.
    pub(super) fn tail(&self, lines: usize) -> Vec<String> {
        let text = self.sink().end().unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
    }

    pub(super) fn lost(&self) -> Lost {
        self.sink().lost
    }

    /// Brings the parts together in the file. To be called when the driver prints no more.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.sink().finish()
    }

    /// With everything in it that has been printed until now.
    fn sink(&self) -> MutexGuard<'_, Sink> {
        let mut sink = lock(&self.sink);
        sink.empty();
        sink
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!("the driver's log lacks its last part: {error}");
        }
    }
}

fn lock(sink: &Mutex<Sink>) -> MutexGuard<'_, Sink> {
    // A panic elsewhere cannot leave it half written.
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for something in a pipe. False when the pipe has no writer any more and all was read.
fn wait(pipe: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, PollTimeout::NONE) {
        Ok(_) => watched[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)),
        Err(errno) => errno == nix::errno::Errno::EINTR,
    }
}

impl Sink {
    /// Reads everything from the pipes.
    fn empty(&mut self) {
        let mut pipes = std::mem::take(&mut self.pipes);
        // A pipe without a writer has ended when it is empty.
        pipes.retain(|pipe| self.empty_one(pipe));
        self.pipes.append(&mut pipes);
    }

    fn empty_one(&mut self, pipe: &OwnedFd) -> bool {
        let mut chunk = vec![0; CHUNK];
        let mut taken = 0;
        while taken < TURN {
            match nix::unistd::read(pipe, &mut chunk) {
                Ok(0) => return false,
                Ok(length) => {
                    taken += length;
                    // If the disk is full, the output is dropped, and the driver goes on. It has not printed too much.
                    if self.add(&chunk[..length]).is_err() {
                        self.lost.unwritten += length as u64;
                    }
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return true,
            }
        }
        true
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let first = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.file.write_all(&bytes[..first])?;
        self.room -= first as u64;
        if first > 0 && self.noted < MOMENTS {
            self.noted += 1;
            // The log itself does not depend on it.
            drop(writeln!(self.times, "{:.3} {}", clock::milliseconds(), self.position));
        }
        self.position += first as u64;
        let mut rest = &bytes[first..];
        while !rest.is_empty() {
            if self.last.is_none() {
                let directory = self.path.parent().unwrap_or(Path::new("."));
                self.last = Some([tempfile::tempfile_in(directory)?, tempfile::tempfile_in(directory)?]);
            }
            let Some([older, younger]) = &mut self.last else { return Ok(()) };
            if self.filled >= self.half {
                // The older half goes, and takes what comes now.
                self.lost.beyond_limit += older.metadata()?.len();
                older.set_len(0)?;
                older.rewind()?;
                std::mem::swap(older, younger);
                self.filled = 0;
            }
            let room = usize::try_from(self.half - self.filled).unwrap_or(usize::MAX).min(rest.len()).max(1);
            younger.write_all(&rest[..room])?;
            self.filled += room as u64;
            rest = &rest[room..];
        }
        Ok(())
    }

    /// The last bytes that were printed, as text.
    fn end(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        match &mut self.last {
            Some([older, younger]) => {
                let missing = END.saturating_sub(self.filled);
                read_end(older, missing, &mut bytes)?;
                read_end(younger, END, &mut bytes)?;
            }
            None => read_end(&mut self.file, END, &mut bytes)?,
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.empty();
        let Some(mut last) = self.last.take() else { return Ok(()) };
        self.filled = 0;
        writeln!(self.file, "\n[{} bytes are left out here]", self.lost.beyond_limit)?;
        for part in &mut last {
            part.rewind()?;
            io::copy(part, &mut self.file)?;
        }
        Ok(())
    }
}

/// Adds the last bytes of a file, whose position stays at its end.
fn read_end(file: &mut File, most: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    file.take(most).read_to_end(bytes)?;
    file.seek(SeekFrom::End(0)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(limit: u64) -> (tempfile::TempDir, Log) {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::with_limit(&directory.path().join("driver.log"), limit).unwrap();
        (directory, log)
    }

    fn kept(directory: &tempfile::TempDir) -> String {
        std::fs::read_to_string(directory.path().join("driver.log")).unwrap()
    }

    #[test]
    fn short_log_is_kept_whole_and_read_at_once() {
        let (directory, log) = log(1 << 10);
        let mut pipe = File::from(log.pipe().unwrap());
        pipe.write_all(b"one\ntwo\n").unwrap();
        // Also when the thread has not been there yet.
        assert_eq!(log.tail(1), ["two"]);
        let mut again = File::from(log.pipe().unwrap());
        again.write_all(b"three\n").unwrap();
        assert_eq!(log.tail(2), ["two", "three"]);
        assert_eq!((log.lost(), kept(&directory).as_str()), (Lost::default(), "one\ntwo\nthree\n"));
    }

    #[test]
    fn moments_of_the_log_are_noted_beside_it() {
        let before = clock::milliseconds();
        let (directory, log) = log(1 << 10);
        let mut pipe = File::from(log.pipe().unwrap());
        for line in ["one\n", "two\n"] {
            pipe.write_all(line.as_bytes()).unwrap();
            log.tail(1);
        }
        let times = std::fs::read_to_string(directory.path().join("driver.times")).unwrap();
        let times: Vec<(&str, &str)> = times.lines().filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(times.iter().map(|(_, position)| *position).collect::<Vec<_>>(), ["0", "4"]);
        let first: f64 = times[0].0.parse().unwrap();
        assert!((before..=clock::milliseconds()).contains(&first), "{first} after {before}");
    }

    #[test]
    fn long_log_keeps_its_first_and_its_last_part() {
        let (directory, log) = log(1 << 10);
        let mut pipe = File::from(log.pipe().unwrap());
        let lines: Vec<String> = (0..1000).map(|number| format!("line {number:04}\n")).collect();
        for line in &lines {
            pipe.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(log.tail(2), ["line 0998", "line 0999"]);
        assert!(kept(&directory).len() <= 512, "the last part is not there yet");
        log.finish().unwrap();
        let text = kept(&directory);
        assert!(
            text.starts_with("line 0000\nline 0001\n") && text.ends_with("line 0998\nline 0999\n"),
            "{text}"
        );
        assert!(text.len() < 1100 && text.contains("bytes are left out here"), "{}", text.len());
        // Nothing is counted twice, and nothing is forgotten.
        let printed: usize = lines.iter().map(String::len).sum();
        let note = text.lines().find(|line| line.contains("left out")).unwrap().len() + 2;
        assert_eq!(log.lost().beyond_limit as usize + text.len() - note, printed);
    }

    #[test]
    fn output_that_finds_the_disk_full_is_not_too_much_of_it() {
        let (_directory, log) = log(1 << 10);
        lock(&log.sink).file = File::options().write(true).open("/dev/full").unwrap();
        File::from(log.pipe().unwrap()).write_all(b"one line\n").unwrap();
        assert_eq!(log.lost(), Lost { beyond_limit: 0, unwritten: 9 });
    }

    #[test]
    fn log_of_a_driver_that_was_started_again_goes_on() {
        let (directory, first) = log(1 << 10);
        File::from(first.pipe().unwrap()).write_all(b"one\n").unwrap();
        drop(first);
        let again = Log::with_limit(&directory.path().join("driver.log"), 1 << 10).unwrap();
        File::from(again.pipe().unwrap()).write_all(b"two\n").unwrap();
        drop(again);
        assert_eq!(kept(&directory), "one\ntwo\n");
    }
}
