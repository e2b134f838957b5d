//! A guest that has booted, kept in a file: the next one starts from there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Boot, Guest, GuestError, arguments, read_line};
use crate::cache::{checksum, hex};
use crate::protocol::{Order, Told};

/// How long the emulator may take for a step.
const WITHIN: Duration = Duration::from_secs(60);

/// What stood in the way of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The emulator refused, or failed on the way.
    #[error("the emulator cannot {what}: {why}")]
    Emulator {
        /// What was asked.
        what: &'static str,
        /// What it said.
        why: String,
    },
    /// A file could not be used.
    #[error("cannot use `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Boot {
    /// Names a snapshot by all it depends on: kernel, root, emulator, and every argument.
    pub fn snapshot_key(&self) -> Result<String, SnapshotError> {
        let io = |path: &Path, source| SnapshotError::Io { path: path.to_owned(), source };
        let mut hash = Sha256::new();
        for path in [&self.kernel, &self.initramfs, &self.qemu] {
            hash.update(checksum(path).map_err(|source| io(path, source))?);
        }
        for argument in arguments(self, Path::new("")) {
            hash.update(argument);
            hash.update([0]);
        }
        Ok(hex(&hash.finalize()))
    }
}

impl Guest {
    /// Stops the guest, writes it to a file, and ends it.
    pub fn save(mut self, to: &Path) -> Result<(), GuestError> {
        self.greet_monitor()?;
        self.ask("stop", json!({}))?;
        // Under another name first: a file that is there is whole.
        let part = to.with_extension("part");
        self.ask("migrate", json!({ "uri": format!("file:{}", part.display()) }))?;
        let deadline = Instant::now() + WITHIN;
        loop {
            let state = self.ask("query-migrate", json!({}))?;
            match state["status"].as_str().unwrap_or_default() {
                "completed" => break,
                "failed" => return Err(emulator("write a snapshot", &state["error-desc"])),
                _ if Instant::now() > deadline => {
                    return Err(emulator("write a snapshot", &json!("it took too long")));
                }
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
        self.end();
        std::fs::rename(&part, to).map_err(|source| SnapshotError::Io { path: to.to_owned(), source }.into())
    }

    /// Starts a guest from a snapshot; the caller falls back to [`Guest::boot`] when this fails.
    pub fn restore(boot: &Boot, from: &Path) -> Result<(Self, Told), GuestError> {
        let mut guest = Self::start(boot, Some(from), WITHIN)?;
        guest.greet_monitor()?;
        let deadline = Instant::now() + WITHIN;
        while guest.ask("query-status", json!({}))?["status"] == "inmigrate" {
            if Instant::now() > deadline {
                return Err(emulator("read a snapshot", &json!("it took too long")));
            }
            thread::sleep(Duration::from_millis(2));
        }
        guest.ask("cont", json!({}))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        guest.order(&Order::Hello { now_ns: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX) })?;
        let hello = guest.hear(WITHIN)?;
        Ok((guest, hello))
    }

    fn greet_monitor(&mut self) -> Result<(), GuestError> {
        read_line(&mut self.monitor, WITHIN).map_err(GuestError::Gone)?;
        self.ask("qmp_capabilities", json!({})).map(drop)
    }

    fn ask(&mut self, what: &'static str, arguments: Value) -> Result<Value, GuestError> {
        let mut line = json!({ "execute": what, "arguments": arguments }).to_string();
        line.push('\n');
        self.monitor.get_mut().write_all(line.as_bytes()).map_err(GuestError::Gone)?;
        loop {
            let line = read_line(&mut self.monitor, WITHIN).map_err(GuestError::Gone)?;
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
