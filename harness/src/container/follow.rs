//! Following files that are replaced all at once, as a program in a container that reads its configuration while it
//! changes. Reads one directory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::wait::Deadline;

/// The time limit for the next content.
const LATE: Duration = Duration::from_secs(18);

/// Reads these files together until all hold `last`; everything they held meanwhile, without repetition.
///
/// They are read through what `..data` leads to at one moment, as the writer means it to be done. A generation that
/// goes away meanwhile is read anew.
pub(super) fn follow(directory: &Path, names: &[String], last: &str) -> io::Result<Vec<Vec<String>>> {
    let mut seen: Vec<Vec<String>> = Vec::new();
    let mut deadline = Deadline::after(LATE);
    // No pause: the mixed state that this looks for lasts as long as a system call.
    while !deadline.passed() {
        let read = match together(directory, names) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let done = read.iter().all(|text| text == last);
        if seen.last() != Some(&read) {
            seen.push(read);
            // However slow the writer is: it is at work.
            deadline = Deadline::after(LATE);
        }
        if done {
            return Ok(seen);
        }
    }
    Err(rustix::io::Errno::TIMEDOUT.into())
}

fn together(directory: &Path, names: &[String]) -> io::Result<Vec<String>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let generation = rustix::fs::open(directory.join("..data"), flags, Mode::empty())?;
    names.iter().map(|name| read(&generation, name)).collect()
}

fn read(generation: &OwnedFd, name: &str) -> io::Result<String> {
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
            // The reader has come to the last of the old files.
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
