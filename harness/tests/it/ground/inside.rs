//! What this binary does when a test calls it: always one thing, in a process of its own.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use harness::census::Census;
use harness::cgroup::{self, Cgroup, Limits};
use harness::facts::{Fact, Facts};
use harness::filesystem::{DiskFormat, Filesystem, Mounted};
use harness::guard::Guard;
use harness::janitor::{Janitor, Lifeline};
use harness::ledger::{Entry, Run, RunDirectory};
use harness::loop_device::{LoopDevice, LoopOptions};
use harness::sandbox::{Sandbox, SandboxOptions};
use harness::tmpfs::Tmpfs;

use super::faults;

pub(crate) fn main(what: &str, more: &[&str]) -> ExitCode {
    match (what, more) {
        ("describe", [kind]) => describe(*kind == "rootless"),
        ("exit", [code]) => {
            enter(SandboxOptions::default());
            std::process::exit(code.parse().unwrap())
        }
        ("die", []) => {
            enter(SandboxOptions::default());
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        ("orphans", []) => orphans(),
        ("leave", []) => leave(),
        ("filesystems", []) => filesystems(),
        ("held", []) => held(),
        ("faults", [kind]) => faults::each(*kind == "rootless"),
        ("hung", []) => faults::hung(),
        ("failing-disk", []) => faults::failing_disk(),
        ("crash", [format]) => faults::crash(format),
        ("forgetful", []) => faults::forgetful(),
        ("disks", [kind, number]) => super::limits::disks(kind, number),
        ("greedy", [how]) => super::limits::driver(how),
        ("machine", [kind, dir]) => super::machine::writes(*kind == "rootless", Path::new(dir)),
        ("own", [kind, dir]) => super::machine::own(*kind == "rootless", Path::new(dir)),
        ("dev", []) => super::machine::dev(),
        ("meet", [number]) => super::machine::meet(number),
        ("threads", []) => {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
            println!("{}", Sandbox::enter(SandboxOptions::default()).unwrap_err());
        }
        ("differential", [seed]) => super::mounts::differential(seed.parse().unwrap()),
        ("run", [base, naive]) => run(Path::new(base), *naive == "naive"),
        ("worker", [ledger, tag, naive]) => worker(Path::new(ledger), tag, *naive == "naive"),
        other => panic!("no such helper: {other:?}"),
    }
    ExitCode::SUCCESS
}

pub(crate) fn enter(options: SandboxOptions) -> Sandbox {
    Sandbox::enter(options).unwrap_or_else(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        eprintln!("{error}: {cause}");
        std::process::exit(4)
    })
}

/// Prints what a sandbox looks like from inside.
fn describe(user_namespace: bool) {
    let state_bytes = 32 << 20;
    let sandbox = enter(SandboxOptions { user_namespace, state_bytes, ..SandboxOptions::default() });
    println!("threads {}", fs::read_dir("/proc/self/task").unwrap().count());
    println!("pid {} of {}", std::process::id(), fs::read_to_string("/proc/1/comm").unwrap().trim());
    println!("uid {}", nix::unistd::geteuid());
    for mount in harness::observe::snapshot().unwrap() {
        // Another run on this machine may share a node's root with a driver that runs already.
        let is_of_another = mount.target.starts_with(harness::ledger::base());
        // Without root the new one is put together of pieces.
        if mount.source == "volproof" && !is_of_another && mount.target != Path::new("/") {
            let shared = if mount.propagation.is_empty() { "private" } else { "shared" };
            println!("{} {} {shared}", mount.target.display(), mount.fstype);
        }
    }
    assert_eq!(sandbox.rootless(), user_namespace);
    let (in_state, in_root) =
        (sandbox.layout().driver_state().join("f"), sandbox.layout().root().join("pods/x"));
    fs::write(&in_state, "x").unwrap();
    fs::create_dir(&in_root).unwrap();
    let of = |path: &Path| fs::metadata(path).unwrap().dev();
    println!("state and root are one file system: {}", of(&in_state) == of(&in_root));
    // As for a pod that has both from its node.
    println!("a file of one in the other: {}", fs::rename(&in_state, in_root.join("f")).unwrap_err().kind());
    fs::write("/var/lib/anything", "x").unwrap();
    let full = fs::write(sandbox.layout().root().join("big"), vec![0; 300 << 20]);
    println!("300 MiB in the node's root: {}", full.unwrap_err().kind());
}

/// Starts children that are orphaned, beside children that are waited for.
fn orphans() {
    enter(SandboxOptions::default());
    for round in 0..50 {
        assert!(Command::new("sh").args(["-c", "(sleep 0.01 &) ; (true &)"]).status().unwrap().success());
        let code = round % 7;
        let status = Command::new("sh").args(["-c", &format!("exit {code}")]).status().unwrap();
        assert_eq!(status.code(), Some(code), "another wait has reaped the status");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for code in 0..50 {
            let command = format!("(true &); exit {code}");
            let status = tokio::process::Command::new("sh").args(["-c", &command]).status().await.unwrap();
            assert_eq!(status.code(), Some(code));
        }
    });
    let buried = || {
        let left = harness::census::process::all();
        (!left.iter().any(|process| process.zombie)).then_some(())
    };
    harness::wait::Deadline::after(Duration::from_secs(5)).until("zombies are left", buried).unwrap();
}

/// Leaves one thing of each kind behind and prints the census.
fn leave() {
    let sandbox = enter(SandboxOptions::default());
    let extra = sandbox.layout().driver_state();
    let before = Census::take(&sandbox, &[]).unwrap();
    assert!(before.leftovers(&before).is_empty());

    let device = LoopDevice::create(&extra, 64 << 20, &LoopOptions::default()).unwrap();
    let pods = sandbox.layout().root().join("pods");
    let (target, block) = (pods.join("web"), pods.join("block"));
    fs::create_dir(&target).unwrap();
    fs::write(&block, "").unwrap();
    run_ok("mkfs.ext4", &["-q", "-F", device.path().to_str().unwrap()]);
    run_ok("mount", &[device.path().to_str().unwrap(), target.to_str().unwrap()]);
    run_ok("mount", &["--bind", device.path().to_str().unwrap(), block.to_str().unwrap()]);
    let mut sleeper = Command::new("sleep").arg("60").current_dir(&target).spawn().unwrap();
    for leftover in Census::take(&sandbox, &[]).unwrap().leftovers(&before) {
        let line = leftover.to_string().replace(&format!("loop{}", device.number()), "loopN");
        let line = line.replace(&format!(":{}", device.number()), ":N");
        println!("{}", line.replace(&format!("[{}]", sleeper.id()), "[P]"));
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    run_ok("umount", &[block.to_str().unwrap()]);
    run_ok("umount", &[target.to_str().unwrap()]);
    fs::remove_dir(&target).unwrap();
    fs::remove_file(&block).unwrap();
    device.close().unwrap();
    let after = Census::take(&sandbox, &[]).unwrap();
    assert_eq!(after.leftovers(&before), []);
}

/// Makes, uses and closes a file system of each format, and a tmpfs, and binds between them.
fn filesystems() {
    let sandbox = enter(SandboxOptions::default());
    let before = Census::take(&sandbox, &[]).unwrap();
    let state = sandbox.layout().driver_state();
    let (disk, view) = (sandbox.layout().root().join("disk"), sandbox.layout().root().join("view"));
    for dir in [&disk, &view] {
        fs::create_dir(dir).unwrap();
    }
    for (format, fact) in
        [(DiskFormat::Ext4, Fact::Ext4), (DiskFormat::Xfs, Fact::Xfs), (DiskFormat::Btrfs, Fact::Btrfs)]
    {
        if let Some(absence) = Facts::get().why_not(fact) {
            println!("{}: skipped: {absence}", format.name());
            continue;
        }
        let filesystem = Filesystem::create(format, format.least_bytes(), &state, &disk).unwrap();
        fs::write(disk.join("f"), "x").unwrap();
        let bind = Mounted::bind(&disk, &view).unwrap().read_only().unwrap();
        let refused = fs::write(view.join("f"), "y").unwrap_err();
        fs::write(disk.join("f"), "z").unwrap();
        println!(
            "{}: {} says {}, {}",
            format.name(),
            bind.target().display(),
            fs::read_to_string(view.join("f")).unwrap(),
            refused.kind()
        );
        bind.close().unwrap();
        filesystem.close().unwrap();
    }
    let memory = Tmpfs::mount(&disk, 1 << 20).unwrap();
    println!("tmpfs: {}", fs::write(memory.path().join("big"), vec![0; 2 << 20]).unwrap_err().kind());
    memory.close().unwrap();
    for dir in [&disk, &view] {
        fs::remove_dir(dir).unwrap();
    }
    assert_eq!(Census::take(&sandbox, &[]).unwrap().leftovers(&before), []);
}

/// Closes and drops mounts that are in use.
fn held() {
    let sandbox = enter(SandboxOptions::default());
    let disk = sandbox.layout().root().join("disk");
    fs::create_dir(&disk).unwrap();
    let memory = Tmpfs::mount(&disk, 1 << 20).unwrap();
    let file = File::create(disk.join("f")).unwrap();
    let me = format!("[{}]", std::process::id());
    println!("{}", memory.close().unwrap_err().to_string().replace(&me, "[P]"));
    println!("mounted: {}", harness::observe::snapshot().unwrap().iter().any(|mount| mount.target == disk));
    println!("noted: {}", harness::guard::take_notes().len());
    drop(file);
}

fn run_ok(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}

/// A run in miniature: ledger, janitor, one worker after the other. Prints `ready` once the first one works.
fn run(base: &Path, naive: bool) {
    let place = RunDirectory::choose_in(base);
    let lifeline = Lifeline::new().unwrap();
    let janitor = Janitor::start(&place, &lifeline).unwrap();
    let run = Run::begin(place).unwrap();
    println!("run {}", run.id());
    let ledger = run.ledger().path().to_str().unwrap();
    let tag = base.file_name().and_then(|name| name.to_str()).unwrap();
    let kind = if naive { "naive" } else { "kind" };
    for _ in 0..3 {
        let status = crate::helper("worker", &[ledger, tag, kind]).stdin(lifeline.reader().unwrap()).status();
        assert!(status.unwrap().success());
    }
    let undone = janitor.finish(run, lifeline).unwrap();
    println!("undone {}, left {}", undone.done.len(), undone.left.len());
}

/// A worker whose driver attaches loop devices carelessly, locks them, mounts them, and tidies nothing.
///
/// All that it makes has the tag in its name, which distinguishes a leftover from what other processes make meanwhile.
fn worker(ledger: &Path, tag: &str, naive: bool) {
    let lifeline = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned().unwrap();
    let options = SandboxOptions {
        lifeline: Some(lifeline),
        ledger: Some(ledger.to_owned()),
        name: "worker".to_owned(),
        ..SandboxOptions::default()
    };
    let sandbox = enter(options);
    // A careless driver keeps one image where its state is, and one on the machine.
    let state = sandbox.layout().driver_state().join(tag);
    let machine = Path::new("/").join(tag);
    for directory in [&state, &machine] {
        fs::create_dir(directory).unwrap();
    }
    let name = format!("volproof-{tag}-{}", sandbox.devices().last().unwrap());
    if let Ok(paths) = cgroup::places(&name) {
        sandbox.ledger().unwrap().record(&Entry::Cgroups { paths }).unwrap();
        std::mem::forget(Cgroup::create(&name, Limits { tasks: 100, memory: 1 << 30 }));
    }
    for index in 0..2 {
        let image = [&state, &machine][index].join("image");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        if naive {
            careless(&image, &sandbox.layout().root().join(format!("lock{index}-{tag}")));
        } else {
            let device = LoopDevice::create(&state, 32 << 20, &LoopOptions::default()).unwrap();
            let target = sandbox.layout().root().join(format!("mnt{index}-{tag}"));
            fs::create_dir(&target).unwrap();
            run_ok("mkfs.ext4", &["-q", "-F", device.path().to_str().unwrap()]);
            run_ok("mount", &[device.path().to_str().unwrap(), target.to_str().unwrap()]);
            std::mem::forget(device);
        }
        let _ = writeln!(std::io::stdout(), "attached");
    }
}

/// Attaches as a naive driver does, without autoclear, and locks the device as the kubelet does.
fn careless(image: &Path, lock: &Path) {
    let found = Command::new("losetup").args(["-f", "--show", image.to_str().unwrap()]).output().unwrap();
    let device = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    if device.is_empty() {
        return;
    }
    fs::write(lock, "").unwrap();
    run_ok("mount", &["--bind", &device, lock.to_str().unwrap()]);
    let _ = Command::new("losetup").args(["-f", lock.to_str().unwrap()]).status();
    let held = File::open(&device).unwrap();
    assert!(held.as_raw_fd() > 2);
}
