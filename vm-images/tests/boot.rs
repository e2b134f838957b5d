//! Boots a real guest from this very binary, runs programs in it, and brings it back from a snapshot.
//!
//! Needs QEMU and a kernel in the cache (or a package client that can fetch one); prints `skipped` without them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use vm_images::cache::Cache;
use vm_images::initramfs::{Initramfs, TRANSPORT};
use vm_images::kernel::KernelFiles;
use vm_images::protocol::{Exit, Order, Run, Told};
use vm_images::qemu::{Accelerator, Boot, Guest, GuestError, Machine, patient};
use vm_images::{fetch, guest, images::Images};

const WITHIN: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::main();
    }
    if std::env::args().nth(1).as_deref() == Some(COUNT) {
        return count();
    }
    let mut arguments = Arguments::from_args();
    // An emulated guest takes a processor of its own.
    arguments.test_threads = Some(1);
    let prepared = prepare().inspect_err(|reason| println!("skipped: {reason}")).ok();
    let trials = TESTS.iter().map(|(name, test)| {
        let prepared = prepared.clone();
        let is_skipped = prepared.is_none();
        let run = move || {
            if let Some(prepared) = prepared {
                test(&prepared.boot, prepared.directory.path());
            }
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(is_skipped)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// A guest's parts, and a directory for snapshots that ends with the last test.
#[derive(Clone)]
struct Prepared {
    boot: Boot,
    directory: Arc<tempfile::TempDir>,
}

type Test = fn(&Boot, &Path);

/// The argument of this binary for counting, in a guest.
const COUNT: &str = "count";

const TESTS: [(&str, Test); 5] = [
    ("programs_run_and_files_travel", |boot, _| programs_run_and_files_travel(boot)),
    ("panic_ends_the_guest_at_once_and_is_named", |boot, _| panic_ends_the_guest_at_once_and_is_named(boot)),
    ("guest_has_no_time_without_its_emulator", |boot, _| guest_has_no_time_without_its_emulator(boot)),
    ("guest_comes_back_from_its_snapshot", guest_comes_back_from_its_snapshot),
    ("unwanted_guest_is_not_waited_for", |boot, _| unwanted_guest_is_not_waited_for(boot)),
];

/// A guest made of this binary and the default kernel, or why there is none.
fn prepare() -> Result<Prepared, String> {
    let qemu = PathBuf::from("/usr/bin/qemu-system-x86_64");
    if !qemu.exists() {
        return Err(format!("there is no {}", qemu.display()));
    }
    let cache = Cache::of_user().map_err(|error| error.to_string())?;
    let images = Images::built_in();
    let packages = match fetch::cached(&cache, images.default_kernel()).map_err(|error| error.to_string())? {
        Some(packages) => packages,
        None if std::env::var_os("VOLPROOF_FETCH").is_some() => {
            fetch::fetch(&cache, images.default_kernel()).map_err(|error| error.to_string())?
        }
        None => return Err("no kernel is cached; VOLPROOF_FETCH=1 fetches one".to_owned()),
    };
    let kernel = KernelFiles::from_packages(&packages).expect("a kernel in its packages");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut root = Initramfs::new().expect("an empty root");
    let me = std::env::current_exe().expect("this binary");
    root.program(&me, Path::new("/init")).expect("this binary goes in");
    root.modules(&kernel.modules, TRANSPORT).expect("its modules go in");
    let (image, initramfs) = (dir.path().join("vmlinuz"), dir.path().join("root.cpio"));
    std::fs::write(&image, &kernel.image).expect("room for a kernel");
    std::fs::write(&initramfs, root.finish().expect("a whole archive")).expect("room for a root");
    let boot = Boot {
        qemu,
        kernel: image,
        initramfs,
        init: Vec::new(),
        memory_mib: 512,
        accelerator: Accelerator::Tcg,
        disks: Vec::new(),
        root: None,
        within: WITHIN,
    };
    Ok(Prepared { boot, directory: Arc::new(dir) })
}

fn programs_run_and_files_travel(boot: &Boot) {
    let started = Instant::now();
    let (mut guest, hello) = Guest::boot(boot, WITHIN, &patient).expect("the guest comes up");
    let Told::Hello { kernel, module_errors, .. } = hello else { panic!("{hello:?}") };
    assert!(module_errors.is_empty(), "{module_errors:?}");
    println!("guest with {kernel} up after {:.1}s", started.elapsed().as_secs_f64());

    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    guest.put("/tmp/deep/er/file", &sent, 0o600).expect("a file goes in");
    let archive = guest.get("/tmp/deep").expect("its directory comes out");
    let mut archive = tar::Archive::new(archive.as_slice());
    let found = archive.entries().expect("an archive").any(|entry| {
        let mut entry = entry.expect("an entry");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).expect("its bytes");
        entry.path().expect("a path").ends_with("er/file") && bytes == sent
    });
    assert!(found, "the file comes out as it went in");

    let exit = run(
        &mut guest,
        Run { id: 1, argv: vec!["/no/such/program".into()], timeout_ms: 30_000, ..Run::default() },
    )
    .1;
    assert!(exit.error.is_some_and(|why| why.contains("No such file")));
    guest.close().expect("power goes off");
}

fn panic_ends_the_guest_at_once_and_is_named(boot: &Boot) {
    let (mut guest, _) = Guest::boot(boot, WITHIN, &patient).expect("the guest comes up");
    let _ = guest.put("/proc/sysrq-trigger", b"c", 0o644);
    let error = guest.hear(WITHIN, &patient).expect_err("the guest is dead");
    assert!(error.to_string().contains("panic"), "{error}");
}

/// A busy machine lets its emulators wait. A program in the guest that has a time limit must not lose any of it.
fn guest_has_no_time_without_its_emulator(boot: &Boot) {
    let (mut guest, _) = Guest::boot(boot, WITHIN, &patient).expect("the guest comes up");
    let emulator = Pid::from_raw(child_of_this_process());
    let argv = ["/init", COUNT].map(str::to_owned).into();
    guest.order(&Order::Run(Run { id: 1, argv, timeout_ms: 60_000, ..Run::default() })).expect("an order");
    let mut said = String::new();
    let (stop, mut has_waited) = (Duration::from_secs(5), false);
    loop {
        match guest.hear(WITHIN, &patient).expect("the guest sends a message") {
            Told::Output { data, .. } => said.push_str(&data),
            Told::Exit(_) => break,
            other => panic!("{other:?}"),
        }
        if !has_waited {
            signal::kill(emulator, Signal::SIGSTOP).expect("it runs");
            std::thread::sleep(stop);
            signal::kill(emulator, Signal::SIGCONT).expect("it is there");
            has_waited = true;
        }
    }
    let counted = said.lines().nth(1).and_then(|line| line.parse().ok()).map(Duration::from_millis);
    let counted = counted.unwrap_or_else(|| panic!("{said}"));
    println!("the guest counted for {} ms of its own time", counted.as_millis());
    assert!(counted < stop, "{counted:?} in the guest, of which its emulator was stopped for {stop:?}");
    guest.close().expect("power goes off");
}

/// The program in the guest: says that it begins, is busy for a while, and says how many milliseconds that took.
fn count() -> ExitCode {
    println!("begun");
    let started = Instant::now();
    for number in 0..2_000_000_u32 {
        std::hint::black_box(number);
    }
    println!("{}", started.elapsed().as_millis());
    ExitCode::SUCCESS
}

/// The only process that this one has started.
fn child_of_this_process() -> i32 {
    let parent = |process: &Path| {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        let (_, after_name) = stat.rsplit_once(") ")?;
        after_name.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
    let child = processes.map(|entry| entry.path()).find(|path| parent(path) == Some(std::process::id()));
    let child = child.expect("the emulator runs");
    child.file_name().and_then(|pid| pid.to_str()?.parse().ok()).expect("a number")
}

fn guest_comes_back_from_its_snapshot(boot: &Boot, dir: &Path) {
    let machine = Machine::new(boot.clone(), dir);
    for _ in 0..3 {
        let started = Instant::now();
        let (mut guest, _) = machine.start(&patient).expect("it comes up");
        println!("started in {:.2}s", started.elapsed().as_secs_f64());
        guest.put("/tmp/x", b"x", 0o600).expect("it works");
        guest.close().expect("power goes off");
    }
    let kept = || std::fs::read_dir(dir).expect("the directory").flatten().map(|entry| entry.path());
    let snapshot = kept().find(|path| path.display().to_string().contains("snapshot-")).expect("it is kept");
    std::fs::write(&snapshot, "no snapshot").expect("it can be spoilt");
    machine.start(&patient).expect("it boots all the same").0.cut_power();
    assert!(!snapshot.exists(), "what cannot be used is thrown away");
}

fn unwanted_guest_is_not_waited_for(boot: &Boot) {
    let error = Guest::boot(boot, WITHIN, &|| true).expect_err("it cannot be up at once");
    assert!(matches!(error, GuestError::Unwanted), "{error}");
}

/// Runs a program in the guest: what it said, and how it ended.
fn run(guest: &mut Guest, run: Run) -> (String, Exit) {
    guest.order(&Order::Run(run)).expect("an order");
    let mut said = String::new();
    loop {
        match guest.hear(WITHIN, &patient).expect("the guest sends a message") {
            Told::Output { data, .. } => said.push_str(&data),
            Told::Exit(exit) => return (said, exit),
            other => panic!("{other:?}"),
        }
    }
}
