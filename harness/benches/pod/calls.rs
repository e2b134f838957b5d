//! Counts this process's system calls, with strace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// An strace of all threads of this process.
pub(crate) struct Counting {
    strace: Child,
    summary: PathBuf,
}

/// Whether there is an strace.
pub(crate) fn can_count() -> bool {
    let asked = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

impl Counting {
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let summary = directory.join("calls");
        let own = std::process::id().to_string();
        let strace = Command::new("strace")
            .args(["-f", "-c", "-p", &own, "-o"])
            .arg(&summary)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start strace")?;
        let counting = Self { strace, summary };
        let begun = Instant::now();
        while !is_traced()? {
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(10), "strace does not trace this process");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(counting)
    }

    /// The number of calls since the start.
    pub(crate) fn stop(mut self) -> Result<u64> {
        kill(Pid::from_raw(self.strace.id().cast_signed()), Signal::SIGINT)?;
        self.strace.wait()?;
        let summary = fs::read_to_string(&self.summary).context("cannot read what strace has counted")?;
        total(&summary).context("strace has counted nothing")
    }
}

/// Whether each thread of this process has a tracer.
fn is_traced() -> Result<bool> {
    for thread in fs::read_dir("/proc/self/task")? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        if status.lines().any(|line| line.split_whitespace().eq(["TracerPid:", "0"])) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The fourth column of the last line: share, seconds, microseconds a call, calls.
fn total(summary: &str) -> Option<u64> {
    summary.lines().find(|line| line.ends_with("total"))?.split_whitespace().nth(3)?.parse().ok()
}
