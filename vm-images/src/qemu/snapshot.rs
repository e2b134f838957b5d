//! A guest that has booted, kept in a file: the next one starts from there.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Boot, From, Guest, GuestError, arguments};
use crate::cache::hex;
use crate::protocol::Told;

/// The time for a step of the emulator.
const WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The emulator refused, or failed on the way.
    #[error("the emulator cannot {what}: {why}")]
    Emulator { what: &'static str, why: String },
    /// A file could not be used.
    #[error("cannot use `{path}`")]
    Io { path: PathBuf, source: io::Error },
}

impl Boot {
    /// Names a snapshot by all it depends on: kernel, roots, emulator, and every argument. A file is known by
    /// its place, size and age; one that is written anew is another.
    pub fn snapshot_key(&self) -> Result<String, SnapshotError> {
        let mut hash = Sha256::new();
        // The time of the driver's root changes with each use, and its content never.
        for path in [&self.kernel, &self.initramfs, &self.qemu] {
            let meta =
                fs::metadata(path).map_err(|source| SnapshotError::Io { path: path.clone(), source })?;
            let stamp = (path, meta.len(), meta.ino(), meta.mtime(), meta.mtime_nsec());
            hash.update(format!("{stamp:?}"));
        }
        for argument in arguments(self) {
            hash.update(argument);
            hash.update([0]);
        }
        Ok(hex(&hash.finalize()[..8]))
    }
}

impl Guest {
    /// Stops the guest, writes it to a file, and ends it.
    pub fn save(mut self, to: &Path) -> Result<(), GuestError> {
        let version = self.greet_monitor()?;
        self.ask("stop", json!({}))?;
        // Written under another name and renamed, so that an existing snapshot is complete.
        let part = to.with_extension(format!("part-{}", std::process::id()));
        let uri = self.uri(version, &part, OpenOptions::new().write(true).create(true).truncate(true))?;
        self.ask("migrate", json!({ "uri": uri }))?;
        let deadline = Instant::now() + WITHIN;
        let written = loop {
            let state = self.ask("query-migrate", json!({}))?;
            match state["status"].as_str().unwrap_or_default() {
                "completed" => break Ok(()),
                "failed" => break Err(emulator("write a snapshot", &state["error-desc"])),
                _ if Instant::now() > deadline => {
                    break Err(emulator("write a snapshot", &json!("it took too long")));
                }
                _ => thread::sleep(Duration::from_millis(5)),
            }
        };
        self.end();
        if written.is_err() {
            // An incomplete file would take space on a full disk.
            let _ = fs::remove_file(&part);
            return written;
        }
        fs::rename(&part, to).map_err(|source| SnapshotError::Io { path: to.to_owned(), source }.into())
    }

    /// Starts a guest from a snapshot; the caller falls back to [`Guest::boot`] when this fails.
    pub fn restore(
        boot: &Boot,
        from: &Path,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<(Self, Told), GuestError> {
        let mut guest = Self::start(boot, From::Snapshot)?;
        let version = guest.greet_monitor()?;
        let uri = guest.uri(version, from, OpenOptions::new().read(true))?;
        guest.ask("migrate-incoming", json!({ "uri": uri }))?;
        let deadline = Instant::now() + WITHIN;
        while guest.ask("query-status", json!({}))?["status"] == "inmigrate" {
            if Instant::now() > deadline {
                return Err(emulator("read a snapshot", &json!("it took too long")));
            }
            if unwanted() {
                return Err(GuestError::Unwanted);
            }
            thread::sleep(Duration::from_millis(2));
        }
        guest.ask("cont", json!({}))?;
        let hello = guest.set_clock(WITHIN, unwanted)?;
        Ok((guest, hello))
    }

    /// Begins to talk with the emulator; its version, major and minor.
    fn greet_monitor(&mut self) -> Result<(u64, u64), GuestError> {
        let greeting = self.monitor.hear(WITHIN).map_err(|error| self.why_gone(error))?;
        self.ask("qmp_capabilities", json!({}))?;
        let greeting: Value = serde_json::from_str(&greeting).unwrap_or_default();
        let version = &greeting["QMP"]["version"]["qemu"];
        let number = |name: &str| version[name].as_u64().unwrap_or_default();
        Ok((number("major"), number("minor")))
    }

    /// The file of a snapshot as the emulator wants it named. Before 8.2 it knows no files, but writes to and reads
    /// from a descriptor that it is given.
    fn uri(&mut self, version: (u64, u64), path: &Path, options: &OpenOptions) -> Result<String, GuestError> {
        if version >= (8, 2) {
            return Ok(format!("file:{}", path.display()));
        }
        let file =
            options.open(path).map_err(|source| SnapshotError::Io { path: path.to_owned(), source })?;
        let line = json!({ "execute": "getfd", "arguments": { "fdname": "snapshot" } }).to_string();
        self.monitor.say_with(line.into_bytes(), &file).map_err(|error| self.why_gone(error))?;
        self.answer("getfd")?;
        Ok("fd:snapshot".to_owned())
    }

    fn ask(&mut self, what: &'static str, arguments: Value) -> Result<Value, GuestError> {
        let line = json!({ "execute": what, "arguments": arguments }).to_string();
        self.monitor.say(line.into_bytes()).map_err(|error| self.why_gone(error))?;
        self.answer(what)
    }

    fn answer(&mut self, what: &'static str) -> Result<Value, GuestError> {
        loop {
            let line = self.monitor.hear(WITHIN).map_err(|error| self.why_gone(error))?;
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            // Events come in between and are not answers.
            if let Some(answer) = said.get("return") {
                return Ok(answer.clone());
            }
            if let Some(error) = said.get("error") {
                return Err(emulator(what, &error["desc"]));
            }
        }
    }
}

fn emulator(what: &'static str, why: &Value) -> GuestError {
    let why = why.as_str().unwrap_or("it did not say why").to_owned();
    SnapshotError::Emulator { what, why }.into()
}
