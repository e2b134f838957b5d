//! The machine that figures are from, the date and the commit. Reads `/proc` and asks git.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// What figures depend on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) cpu: String,
    /// The processes that were runnable over the last fifteen minutes, those of the measurement included.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |path: &str, name: &str| {
            let text = text(path);
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
            value.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = field("/proc/meminfo", "MemTotal");
        let kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        Self {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kib / 1024.0 / 102.4).round() / 10.0,
            cpu: field("/proc/cpuinfo", "model name"),
            load: text("/proc/loadavg").split(' ').nth(2).unwrap_or_default().to_owned(),
        }
    }
}

/// Now, in UTC, to the second.
pub(crate) fn date() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let second = i64::try_from(since.as_secs()).unwrap_or_default();
    jiff::Timestamp::from_second(second).map_or_else(|_| String::new(), |now| now.to_string())
}

/// The commit that was measured, with a `+` if files of it are changed.
pub(crate) fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}+") })
}
