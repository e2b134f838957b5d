//! The content of a volume at its staging path or a target: patterns that a case writes and finds again.

use std::fs::File;
use std::panic::Location;
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};

use super::NodeCalls;
use crate::bed::StepError;
use crate::bed::node_calls::in_time;
use crate::bed::pattern;
use crate::failure::Result;

impl NodeCalls {
    /// Writes a pattern of this name, durably, to the volume at a path.
    #[track_caller]
    pub fn writes(&self, at: &Path, name: &str) -> impl Future<Output = Result> {
        self.write(at, name, true, Location::caller())
    }

    /// Writes a pattern without syncing it: it may stay in the page cache.
    #[track_caller]
    pub fn writes_to_cache(&self, at: &Path, name: &str) -> impl Future<Output = Result> {
        self.write(at, name, false, Location::caller())
    }

    fn write(
        &self,
        at: &Path,
        name: &str,
        durable: bool,
        caller: &Location<'_>,
    ) -> impl Future<Output = Result> {
        let (path, seed) = (self.file(at, name), self.seed_of(name));
        let doing = self.begin("writing", &path, caller);
        async move {
            let written = in_time("writing", move || pattern::write(&path, seed, durable)).await;
            let broken = |error| StepError::Broken(vec!["The volume cannot be written.".to_owned(), error]);
            let end = doing.done(
                written.and_then(|end| end.map_err(|error: std::io::Error| broken(error.to_string()))),
            )?;
            self.written.set(end);
            Ok(())
        }
    }

    /// Whether the volume at a path has the pattern of this name.
    #[track_caller]
    pub fn has(&self, at: &Path, name: &str) -> impl Future<Output = Result<bool>> {
        let (path, seed) = (self.file(at, name), self.seed_of(name));
        let doing = self.begin("reading", &path, Location::caller());
        async move {
            // A pattern that cannot be read counts as missing.
            let read = in_time("reading", move || pattern::is_there(&path, seed).unwrap_or(false)).await;
            doing.done(read)
        }
    }

    /// Whether a process without other rights can create a file in the volume's root as a member of this group.
    #[track_caller]
    pub fn group_can_write(&self, at: &Path, group: u32) -> impl Future<Output = Result<bool>> {
        let path = at.to_owned();
        let doing = self.begin("writing as a group", &path, Location::caller());
        async move { doing.done(in_time("writing", move || write_as(group, &path)).await) }
    }

    /// Creates a file in the volume and keeps it open, as a running process of a pod does.
    #[track_caller]
    pub fn opens(&self, at: &Path, name: &str) -> impl Future<Output = Result<File>> {
        let path = self.file(at, name);
        let doing = self.begin("opening", &path, Location::caller());
        async move {
            let opened = in_time("opening", move || File::create(path)).await;
            doing.done(opened.and_then(|opened| opened.map_err(|error| StepError::ours(&error))))
        }
    }

    pub(super) fn seed_of(&self, name: &str) -> u64 {
        let mix = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        (self.volume.bytes().chain(name.bytes())).fold(self.shared.bed.seed().wrapping_add(17), mix)
    }
}

/// Whether a user without rights can create a file in a directory by its group. In a thread of its own, because a pooled
/// thread must not change its user.
fn write_as(group: u32, directory: &Path) -> bool {
    // Opened here, as root: a user without rights cannot traverse the node's directories.
    let Ok(directory) = File::open(directory) else { return false };
    let thread = std::thread::spawn(move || {
        nix::unistd::setfsgid(Gid::from_raw(group));
        nix::unistd::setfsuid(Uid::from_raw(group));
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        openat(&directory, "of-the-group", flags, Mode::from_bits_truncate(0o660)).is_ok()
    });
    thread.join().unwrap_or(false)
}
