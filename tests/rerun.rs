//! `--rerun`: the cases run again when the driver's program changes, and the difference is reported.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tests::{Ended, Volproof, built, has_root};

/// A driver in the file, under its final name at once.
fn write_driver(file: &Path, arguments: &str) {
    let text = format!("#!/bin/sh\nexec {} __fake-csi \"$@\" {arguments}\n", built().display());
    let new = file.with_extension("new");
    std::fs::write(&new, text).expect("a script");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::rename(&new, file).expect("they are in one directory");
}

#[test]
fn driver_that_was_mended_runs_again_and_the_finding_is_gone() {
    if !has_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let driver = place.path().join("driver");
    write_driver(&driver, "--sabotage list-accepts-any-token");
    let command =
        format!("{} --endpoint={{endpoint}} --node={{node}} --state-dir={{state}}", driver.display());
    let run = Volproof::new()
        .args("run --rerun csi::calls::unknown_list_token_is_refused --driver-cmd")
        .arg(command);
    let (mut child, directory) = run.start();
    let group = Pid::from_raw(child.id().try_into().expect("a process id"));
    let mut waits = 0;
    let mut errors = String::new();
    for line in BufReader::new(child.stderr.take().expect("it is piped")).lines() {
        let line = line.expect("it is text");
        if line.contains("runs again when") {
            waits += 1;
            match waits {
                1 => write_driver(&driver, ""),
                _ => killpg(group, Signal::SIGINT).expect("it waits for the next change"),
            }
        }
        errors.push_str(&line);
        errors.push('\n');
    }
    let ended = Ended::of(child.wait_with_output().expect("its output"), directory);
    assert!(ended.stdout.contains("Since the run before: 1 mended"), "{}\n{errors}", ended.told());
    assert!(matches!(ended.code, Some(0 | 130)), "{}\n{errors}", ended.told());
}
