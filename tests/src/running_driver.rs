//! A driver that the user has started by hand, before any run and outside of every sandbox.

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::built;

/// fake-csi on the machine itself. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningDriver {
    child: Child,
    directory: TempDir,
}

impl RunningDriver {
    /// Starts it and waits until it listens.
    pub fn start() -> RunningDriver {
        RunningDriver::start_with(&[])
    }

    /// Starts the driver with more arguments.
    pub fn start_with(arguments: &[&str]) -> RunningDriver {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        let mut command = Command::new(built());
        // SAFETY: prctl is async-signal-safe. A test that is killed takes its driver along.
        unsafe { command.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)) };
        let child = command
            .arg("__fake-csi")
            .arg(format!("--endpoint=unix://{}", path("csi.sock")))
            .arg(format!("--state-dir={}", path("state")))
            .arg("--node=node-of-its-own")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fake-csi can be started");
        let driver = RunningDriver { child, directory };
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(driver.socket()).is_err() {
            assert!(Instant::now() < deadline, "fake-csi does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        driver
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("csi.sock")
    }

    /// The files of its volumes, and where it has mounted them for itself.
    pub fn volumes(&self) -> Vec<String> {
        let state = self.directory.path().join("state");
        let below = |name: &str| fs::read_dir(state.join(name)).into_iter().flatten().flatten();
        let all = below("volumes").chain(below("mounts"));
        all.map(|entry| format!("file {} of the driver", entry.path().display())).collect()
    }
}

impl Drop for RunningDriver {
    fn drop(&mut self) {
        // An error means that the driver has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
