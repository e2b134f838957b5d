//! Faults on demand: each does what it says, and no process that meets one hangs for ever.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::census::Census;
use harness::facts::{Fact, Facts};
use harness::fault_fs::{Fault, FaultDisk, FaultFs, FaultFsOptions, Operation, Rule, WriteLog};
use harness::filesystem::{DiskFormat, Mounted};
use harness::guard::Guard;
use harness::loop_device::{LoopDevice, LoopOptions};
use harness::sandbox::{Sandbox, SandboxOptions};
use harness::wait::Deadline;
use libtest_mimic::{Failed, Trial};
use nix::mount::MsFlags;

use super::inside::enter;
use crate::run_helper;

pub(crate) fn trials() -> Vec<Trial> {
    let needs = |name: &'static str, facts: &'static [Fact], body: fn() -> Result<(), Failed>| {
        let absent = facts.iter().find_map(|fact| Facts::get().why_not(*fact));
        if let Some(absence) = absent {
            eprintln!("{name}: ignored, because {absence}");
        }
        Trial::test(name, body).with_ignored_flag(absent.is_some())
    };
    vec![
        needs("faults::each_does_what_it_says", &[Fact::Fuse], || run_helper("faults", &["root"]).map(drop)),
        needs("faults::work_in_a_user_namespace", &[Fact::Fuse, Fact::UserNamespaces], || {
            run_helper("faults", &["rootless"]).map(drop)
        }),
        needs("faults::a_hung_caller_is_freed", &[Fact::Fuse], || run_helper("hung", &[]).map(drop)),
        needs("faults::a_disk_fails_below_a_file_system", &[Fact::Fuse, Fact::Ext4, Fact::Loop], || {
            run_helper("failing-disk", &[]).map(drop)
        }),
        needs("crash::ext4_keeps_what_it_promised", &[Fact::Fuse, Fact::Ext4, Fact::Loop], || {
            run_helper("crash", &["ext4"]).map(drop)
        }),
        needs("crash::xfs_keeps_what_it_promised", &[Fact::Fuse, Fact::Xfs, Fact::Loop], || {
            run_helper("crash", &["xfs"]).map(drop)
        }),
        needs("crash::btrfs_keeps_what_it_promised", &[Fact::Fuse, Fact::Btrfs, Fact::Loop], || {
            run_helper("crash", &["btrfs"]).map(drop)
        }),
        needs(
            "crash::a_writer_that_forgets_to_sync_is_caught",
            &[Fact::Fuse, Fact::Ext4, Fact::Loop],
            || run_helper("forgetful", &[]).map(drop),
        ),
    ]
}

fn start(sandbox: &Sandbox) -> FaultFs {
    let state = sandbox.layout().driver_state();
    let [backing, target] = ["backing", "shown"].map(|name| state.join(name));
    for dir in [&backing, &target] {
        fs::create_dir_all(dir).unwrap();
    }
    FaultFs::start(FaultFsOptions { backing, target, control: state.join("fault.sock"), seed: 1 }).unwrap()
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

pub(crate) fn each(user_namespace: bool) {
    let sandbox = enter(SandboxOptions { user_namespace, ..SandboxOptions::default() });
    let before = Census::take(&sandbox, &[]).unwrap();
    let mut faults = start(&sandbox);
    mirrors(faults.path());
    fails(&faults);
    writes_less(&faults);
    dies_and_comes_back(&mut faults);
    faults.close().unwrap();
    assert_eq!(Census::take(&sandbox, &[]).unwrap().leftovers(&before), []);
}

/// Without a rule it is an ordinary file system.
fn mirrors(top: &Path) {
    fs::create_dir(top.join("dir")).unwrap();
    fs::write(top.join("dir/a"), "hello").unwrap();
    let mut appended = OpenOptions::new().append(true).open(top.join("dir/a")).unwrap();
    appended.write_all(b" world").unwrap();
    appended.sync_all().unwrap();
    fs::rename(top.join("dir/a"), top.join("b")).unwrap();
    std::os::unix::fs::symlink("b", top.join("link")).unwrap();
    assert_eq!(fs::read_to_string(top.join("link")).unwrap(), "hello world");
    fs::hard_link(top.join("b"), top.join("c")).unwrap();
    appended.set_len(5).unwrap();
    assert_eq!(fs::read_to_string(top.join("c")).unwrap(), "hello");
    fs::set_permissions(top.join("c"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut names: Vec<_> = fs::read_dir(top).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "c", "dir", "link"]);
    fs::remove_dir(top.join("dir")).unwrap();
    for name in ["b", "c", "link"] {
        fs::remove_file(top.join(name)).unwrap();
    }
    assert_eq!(fs::read_dir(top).unwrap().count(), 0);
}

fn fails(faults: &FaultFs) {
    let top = faults.path();
    fs::write(top.join("a"), "12345678").unwrap();
    let rule = Rule::on(Operation::Write, Fault::Errno(libc::EIO)).path("a").after(1).times(1);
    let id = faults.arm(rule).unwrap();
    let file = OpenOptions::new().write(true).open(top.join("a")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(errno(file.write_all_at(b"y", 1)), libc::EIO);
    file.write_all_at(b"z", 2).unwrap();
    assert_eq!(faults.control().status().unwrap().struck[&id], 1);
    faults.control().disarm(id).unwrap();
    assert!(faults.control().disarm(id).is_err(), "a rule can be disarmed only once");

    faults.arm(Rule::on(Operation::Sync, Fault::Errno(libc::EDQUOT))).unwrap();
    assert_eq!(errno(file.sync_all()), libc::EDQUOT);
    faults.arm(Rule::on(Operation::Create, Fault::Errno(libc::EROFS)).path("new")).unwrap();
    assert_eq!(errno(File::create(top.join("new"))), libc::EROFS);
    File::create(top.join("newer")).unwrap();
    faults.arm(Rule::on(Operation::Any, Fault::NoSpace(10)).path("newer")).unwrap();
    fs::write(top.join("newer"), "0123456789").unwrap();
    assert_eq!(errno(fs::write(top.join("newer"), "0")), libc::ENOSPC);
    faults.arm(Rule::on(Operation::Look, Fault::Errno(libc::EACCES)).path("a")).unwrap();
    assert_eq!(errno(fs::metadata(top.join("a"))), libc::EACCES);
    faults.release().unwrap();
    assert_eq!(fs::read_to_string(top.join("a")).unwrap(), "x2z45678");
    fs::remove_file(top.join("newer")).unwrap();
}

fn writes_less(faults: &FaultFs) {
    let top = faults.path();
    let once = |fault| faults.arm(Rule::on(Operation::Write, fault).times(1)).unwrap();
    let file = OpenOptions::new().write(true).open(top.join("a")).unwrap();
    once(Fault::Short(2));
    assert_eq!(file.write_at(b"AAAA", 0).unwrap(), 2);
    once(Fault::Torn(1));
    assert_eq!(file.write_at(b"BBBB", 4).unwrap(), 4);
    once(Fault::Lost);
    assert_eq!(file.write_at(b"CCCC", 0).unwrap(), 4);
    assert_eq!(fs::read_to_string(top.join("a")).unwrap(), "AAz4B678");
    faults.release().unwrap();
}

fn dies_and_comes_back(faults: &mut FaultFs) {
    let top = faults.path().to_owned();
    let mut file = File::open(top.join("a")).unwrap();
    faults.arm(Rule::on(Operation::Read, Fault::Die)).unwrap();
    assert!(file.read(&mut [0; 1]).is_err());
    let gone = || (errno(fs::metadata(top.join("a"))) == libc::ENOTCONN).then_some(());
    Deadline::after(Duration::from_secs(10)).until("a dead server still answers", gone).unwrap();
    faults.come_back().unwrap();
    assert_eq!(fs::read_to_string(top.join("a")).unwrap(), "AAz4B678");
    assert_eq!(errno(file.read(&mut [0; 1])), libc::ENOTCONN, "an old descriptor does not come back");
}

/// Callers that hang, with a server that answers orders and with one that is stopped.
pub(crate) fn hung() {
    let sandbox = enter(SandboxOptions::default());
    let before = Census::take(&sandbox, &[]).unwrap();
    for stopped in [false, true] {
        let faults = start(&sandbox);
        fs::write(faults.path().join("a"), "x").unwrap();
        faults.arm(Rule::on(Operation::Read, Fault::Hang)).unwrap();
        let mut victim = Command::new("cat").arg(faults.path().join("a")).spawn().unwrap();
        let hangs = || (faults.control().status().ok()?.hanging == 1).then_some(());
        Deadline::after(Duration::from_secs(10)).until("no call hangs", hangs).unwrap();
        if stopped {
            // From now on the victim cannot even be killed.
            victim.kill().unwrap();
            let server = nix::unistd::Pid::from_raw(faults.pid() as i32);
            nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGSTOP).unwrap();
            // Each of its threads stops when it next looks, and one that has not yet could still answer.
            let stands = || is_stopped(server).then_some(());
            Deadline::after(Duration::from_secs(10)).until("the server runs on", stands).unwrap();
            drop(faults);
            assert_eq!(harness::guard::take_notes().len(), 1, "what had to be forced is noted");
        } else {
            faults.close().unwrap();
        }
        let freed = || victim.try_wait().unwrap();
        let status = Deadline::after(Duration::from_secs(10)).until("the victim hangs", freed).unwrap();
        assert!(!status.success());
    }
    assert_eq!(Census::take(&sandbox, &[]).unwrap().leftovers(&before), []);
}

/// Whether every thread of a process stands still.
fn is_stopped(process: nix::unistd::Pid) -> bool {
    let stopped = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    };
    fs::read_dir(format!("/proc/{process}/task")).unwrap().all(|task| stopped(task.unwrap()))
}

/// A write that the disk refuses is an error for its caller, and shows in the options of the mount.
pub(crate) fn failing_disk() {
    let sandbox = enter(SandboxOptions::default());
    let before = Census::take(&sandbox, &[]).unwrap();
    let state = sandbox.layout().driver_state();
    let target = state.join("mounted");
    fs::create_dir(&target).unwrap();
    let disk = FaultDisk::create(&state, 64 << 20, 1).unwrap();
    DiskFormat::Ext4.make(&disk.device().path()).unwrap();
    let mounted = Mounted::mount("ext4", &disk.device().path(), &target, MsFlags::empty(), "").unwrap();
    fs::write(target.join("before"), "x").unwrap();
    File::open(target.join("before")).unwrap().sync_all().unwrap();
    disk.fs().arm(Rule::on(Operation::Write, Fault::Errno(libc::EIO)).path(disk.file())).unwrap();
    let mut file = File::create(target.join("after")).unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(errno(file.sync_all()), libc::EIO);
    // The commit that this forces meets the error, too, and ends the journal.
    let _ = nix::unistd::syncfs(&file);
    assert_eq!(errno(File::create(target.join("more"))), libc::EROFS);
    let table = harness::observe::snapshot().unwrap();
    let options = &table.iter().find(|mount| mount.target == target).unwrap().super_opts;
    assert!(options.contains("emergency_ro") || options.starts_with("ro"), "{options}");
    disk.fs().release().unwrap();
    drop(file);
    mounted.close().unwrap();
    disk.close().unwrap();
    fs::remove_dir(&target).unwrap();
    assert_eq!(Census::take(&sandbox, &[]).unwrap().leftovers(&before), []);
}

/// Writes files on a disk whose every write is logged, with a promise after each.
fn write_with_promises(state: &Path, format: DiskFormat, syncs: bool) -> WriteLog {
    let target = state.join("mounted");
    fs::create_dir(&target).unwrap();
    let disk = FaultDisk::create(state, format.least_bytes(), 1).unwrap();
    let device = disk.device().path();
    format.make(&device).unwrap();
    let log = state.join("log");
    let control = disk.fs().control();
    control.log(disk.file(), &log).unwrap();
    let mounted = Mounted::mount(format.name(), &device, &target, MsFlags::empty(), "").unwrap();
    for index in 0..6 {
        let name = format!("file{index}");
        let mut file = File::create(target.join(&name)).unwrap();
        file.write_all(name.repeat(1000).as_bytes()).unwrap();
        if syncs {
            file.sync_all().unwrap();
            File::open(&target).unwrap().sync_all().unwrap();
        }
        control.mark(&name).unwrap();
    }
    mounted.close().unwrap();
    disk.close().unwrap();
    WriteLog::read(&log).unwrap()
}

/// Mounts what every power cut could have left, and returns the promises that were broken.
fn broken_promises(state: &Path, format: DiskFormat, log: &WriteLog) -> (usize, Vec<String>) {
    let (image, target) = (state.join("image"), state.join("mounted"));
    let cuts = log.cuts();
    let mut broken = Vec::new();
    for cut in &cuts {
        log.replay(cut, &image).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
        let device = LoopDevice::over(file, &LoopOptions::default()).unwrap();
        let mounted = Mounted::mount(format.name(), &device.path(), &target, MsFlags::empty(), "")
            .unwrap_or_else(|error| panic!("{error}: {} after {cut:?}", error.source));
        for name in log.promised(cut) {
            let expected = name.repeat(1000);
            if fs::read_to_string(target.join(name)).ok().as_deref() != Some(&expected) {
                broken.push(format!("{name} after {cut:?}"));
            }
        }
        mounted.close().unwrap();
        check(format, &device.path());
        device.close().unwrap();
    }
    (cuts.len(), broken)
}

/// After its journal was replayed, a file system has no faults.
fn check(format: DiskFormat, device: &Path) {
    let device = device.to_str().unwrap();
    let (program, arguments) = match format {
        DiskFormat::Ext4 => ("e2fsck", vec!["-fn", device]),
        DiskFormat::Xfs => ("xfs_repair", vec!["-n", device]),
        DiskFormat::Btrfs => ("btrfs", vec!["check", device]),
    };
    let output = Command::new(program).args(&arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stdout));
}

pub(crate) fn crash(format: &str) {
    let format = match format {
        "ext4" => DiskFormat::Ext4,
        "xfs" => DiskFormat::Xfs,
        _ => DiskFormat::Btrfs,
    };
    let sandbox = enter(SandboxOptions::default());
    let state = sandbox.layout().driver_state();
    let log = write_with_promises(&state, format, true);
    let (states, broken) = broken_promises(&state, format, &log);
    assert!(states > 12, "six files with a sync each leave more than {states} states");
    assert_eq!(broken, Vec::<String>::new());
    println!("{states} states");
}

pub(crate) fn forgetful() {
    let sandbox = enter(SandboxOptions::default());
    let state = sandbox.layout().driver_state();
    let log = write_with_promises(&state, DiskFormat::Ext4, false);
    let (_, broken) = broken_promises(&state, DiskFormat::Ext4, &log);
    assert!(!broken.is_empty(), "promises without a sync are broken by a power cut");
}
