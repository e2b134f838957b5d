//! Findings for programs: one line of JSON each, appended to a file as it is found.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use contracts::promise;
use contracts::rule::Violation;
use serde_json::json;

use super::sentence;

/// A file of findings.
#[derive(Debug)]
pub(crate) struct Findings {
    file: File,
    driver: String,
}

impl Findings {
    /// Appends to a file, which another watch may have begun.
    pub(crate) fn open(path: &Path, driver: &str) -> io::Result<Self> {
        let file = harness::private::append(path)?;
        Ok(Self { file, driver: driver.to_owned() })
    }

    /// Writes one. `hide` takes secrets out of a text.
    pub(crate) fn write(&mut self, violation: &Violation, hide: impl Fn(&str) -> String) {
        let Violation { contract, method, cause, detail, seq: _ } = violation;
        let strength = promise::find(contract).map(|promise| promise.strength.to_string());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = json!({
            "unix_seconds": now.as_secs(),
            "driver": self.driver,
            "promise": contract,
            "strength": strength,
            "method": method,
            "cause": cause,
            "detail": hide(detail),
            "sentence": sentence(contract),
        });
        // An error is ignored: a full disk must not stop the driver that is watched.
        let _ = self.file.write_all(format!("{line}\n").as_bytes());
    }
}
