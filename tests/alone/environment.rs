//! A machine that lacks a resource: failures are not the driver's, and the run names the resource.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serial_test::serial;
use tempfile::TempDir;
use tests::{Ended, Volproof, built, has_root};

const CASE: &str = "csi::publish::read_only_claim_cannot_be_written";

/// Some that an ordinary user can run with fake-csi. Together they need far more processes than he may have.
const TOGETHER: &str = "csi::calls csi::lifecycle --jobs 6";

/// A user of whom no process runs, so that all that count are the run's.
const NOBODY: u32 = 61_234;

/// The program, started by a shell that does something to its surroundings first.
fn after(first: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("volproof");
    fs::write(&path, format!("#!/bin/sh\n{first}\n")).expect("a script");
    for path in [directory.path(), path.as_path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    (directory, path)
}

/// Runs a driver that lets a pod write to a volume that it has read-only.
fn run(program: &Path) -> Ended {
    let driver = format!(
        "{} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}} --sabotage publish-ignores-read-only",
        built().display()
    );
    Volproof::at(program).args("run").arg(CASE).args("--report out/report --driver-cmd").arg(driver).run()
}

#[test]
#[serial]
fn driver_is_accused_where_there_is_enough_of_everything() {
    if !has_root() {
        return;
    }
    let (_script, program) = after(&format!("mkdir out; exec {} \"$@\"", built().display()));
    let ended = run(&program);
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    assert!(ended.told().contains("DRV-050"), "{}", ended.told());
}

#[test]
#[serial]
fn full_disk_of_the_reports_neither_accuses_nor_acquits_the_driver() {
    if !has_root() {
        return;
    }
    let volproof = built().display().to_string();
    let mount = "mkdir out && mount -t tmpfs -o size=64k none out";
    let (_script, program) =
        after(&format!("exec unshare --mount sh -c '{mount} && exec {volproof} \"$@\"' run \"$@\""));
    let ended = run(&program);
    let told = ended.told();
    assert_eq!(ended.code, Some(4), "{told}");
    // The driver did break a promise: it is not accused, and not acquitted.
    let words = "Who is at fault is not known: the disk is full: nothing more can be kept in";
    assert!(told.contains(words) && !told.contains("Not the driver's fault"), "{told}");
    let findings = told.lines().filter(|line| line.trim_start().starts_with("Finding "));
    assert_eq!(findings.count(), 1, "{told}");
}

#[test]
#[serial]
fn missing_tool_of_fake_csi_is_no_failure_of_a_case() {
    if !has_root() {
        return;
    }
    let Some(tool) =
        ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].into_iter().find(|tool| Path::new(tool).exists())
    else {
        return println!("skipped: `mkfs.ext4` is not installed");
    };
    let volproof = built().display().to_string();
    let hide = format!("mount --bind /dev/null \"$(readlink -f {tool})\"");
    let (_script, program) =
        after(&format!("exec unshare --mount sh -c '{hide} && exec {volproof} \"$@\"' run \"$@\""));
    let ended = Volproof::at(&program).args("run csi::lifecycle csi::inline").run();
    assert_eq!(ended.code, Some(3), "{}", ended.told());
    assert!(ended.told().contains("apt-get install e2fsprogs"), "{}", ended.told());
}

#[test]
#[serial]
fn tools_are_found_where_the_path_of_su_does_not_lead() {
    if !has_root() {
        return;
    }
    let ended = Volproof::new().env("PATH", "/usr/local/bin:/usr/bin:/bin").args("run").arg(CASE).run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
}

#[test]
#[serial]
fn full_directory_for_temporary_files_is_named() {
    if !has_root() {
        return;
    }
    let volproof = built().display().to_string();
    let fill = "mkdir full && mount -t tmpfs -o size=16k none full && head -c 16k /dev/zero >full/x";
    let (_script, program) = after(&format!(
        "exec unshare --mount sh -c '{fill}; export TMPDIR=$PWD/full XDG_CACHE_HOME=$PWD/full; exec {volproof} \"$@\"' run \"$@\""
    ));
    let ended = Volproof::at(&program).args("run").arg(CASE).run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    let words = ["/full/volproof-", "TMPDIR", "No space left on device"];
    assert!(words.iter().all(|word| ended.told().contains(word)), "{}", ended.told());
}

#[test]
#[serial]
fn doctor_advises_a_user_who_may_not_open_the_devices() {
    if !has_root() {
        return;
    }
    let dev = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 600 /dev/fuse c 10 229 && \
               mknod -m 660 /dev/kvm c 10 232";
    let user = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let volproof = built().display();
    let (_script, program) = after(&format!(
        "chmod 777 . tmp; exec unshare --mount sh -c '{dev} && exec {user} {volproof} doctor'"
    ));
    let ended = Volproof::at(&program).run();
    let told = ended.told();
    for advice in [
        "become a member of the group that `/dev/kvm` belongs to, often kvm",
        "let your user open it: `chmod 666 /dev/fuse`",
    ] {
        assert!(ended.stdout.contains(advice), "{told}");
    }
}

#[test]
#[serial]
fn limit_of_processes_is_named() {
    if !has_root() {
        return;
    }
    let volproof = built().display();
    let user = format!("prlimit --nproc=14 setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let (_script, program) = after(&format!("mkdir out; chmod 777 . tmp out; exec {user} {volproof} \"$@\""));
    let ended = Volproof::at(&program).args("run").args(TOGETHER).args("--report out/report").run();
    let told = ended.told();
    assert!(matches!(ended.code, Some(1 | 4)), "{told}");
    assert!(told.contains("Not the driver's fault: too few processes: this user may have 14"), "{told}");
    assert!(!told.lines().any(|line| line.trim_start().starts_with("FAIL")), "{told}");
}
