//! Reads files again and again while an atomic writer replaces them all at once, as a program in a container reads a
//! configuration that changes. Reads one directory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::wait::Deadline;

/// The time limit for each new content.
const CONTENT_LIMIT: Duration = Duration::from_secs(18);

/// Reads these files together until all hold `last`, and returns what they held, without repeating equal reads in
/// a row.
///
/// The files are read through one opened directory: the generation that `..data` leads to at that moment, as readers of
/// an atomic writer should. If that generation is removed meanwhile, all files are read again.
pub(super) fn follow(directory: &Path, names: &[String], last: &str) -> io::Result<Vec<Vec<String>>> {
    let mut seen: Vec<Vec<String>> = Vec::new();
    let mut deadline = Deadline::after(CONTENT_LIMIT);
    // No pause between reads: a mix of old and new files may be visible for no longer than a system call.
    while !deadline.passed() {
        let texts = match read_together(directory, names) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            result => result?,
        };
        let done = texts.iter().all(|text| text == last);
        if seen.last() != Some(&texts) {
            seen.push(texts);
            // A new content shows that the writer is at work: a slow one gets the full time again.
            deadline = Deadline::after(CONTENT_LIMIT);
        }
        if done {
            return Ok(seen);
        }
    }
    Err(rustix::io::Errno::TIMEDOUT.into())
}

fn read_together(directory: &Path, names: &[String]) -> io::Result<Vec<String>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let generation = rustix::fs::open(directory.join("..data"), flags, Mode::empty())?;
    names.iter().map(|name| read_file(&generation, name)).collect()
}

fn read_file(generation: &OwnedFd, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(generation.as_fd(), name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::inotify;

    use super::*;

    /// Makes a generation with this text in each file, and switches to it.
    fn switch(directory: &Path, generation: &str, names: &[String]) {
        let files = directory.join(generation);
        fs::create_dir(&files).unwrap();
        names.iter().for_each(|name| fs::write(files.join(name), generation).unwrap());
        symlink(generation, directory.join("..next")).unwrap();
        fs::rename(directory.join("..next"), directory.join("..data")).unwrap();
    }

    #[test]
    fn content_that_is_replaced_is_seen_before_and_after() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let names = ["a", "b"].map(str::to_owned);
        switch(path, "old", &names);
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, path.join("old/b"), inotify::WatchFlags::ACCESS).unwrap();
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| follow(path, &names, "new").unwrap());
            // Waits until the reader reads `b`, the last of the old files.
            rustix::io::read(&watch, &mut [0; 256]).unwrap();
            switch(path, "new", &names);
            reader.join().unwrap()
        });
        assert_eq!(seen, [["old", "old"], ["new", "new"]]);
    }

    #[test]
    fn content_that_is_never_replaced_is_seen_once() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["a", "b"].map(str::to_owned);
        switch(directory.path(), "new", &names);
        assert_eq!(follow(directory.path(), &names, "new").unwrap(), [["new", "new"]]);
    }
}
