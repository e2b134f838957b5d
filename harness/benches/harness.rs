//! What the harness itself costs: a sandbox, the recorder, resolving a mount, a disk that can fail, calls through the
//! proxy.
//!
//! Ratios travel between machines, times do not. Each measurement is a process of its own, since a sandbox can only be
//! entered once. Needs root. `cargo xtask bench harness`

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

#[path = "harness/objects.rs"]
mod objects;
#[path = "harness/through.rs"]
mod through;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use harness::fault_fs::FaultDisk;
use harness::guard::Guard;
use harness::loop_device::{LoopDevice, LoopOptions};
use harness::observe::{MountEventKind, MountWatch};
use harness::sandbox::{Sandbox, SandboxOptions};
use measure::{Aim, Program, Row};
use mimalloc::MiMalloc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// As `volproof` has it.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

const SUBJECT: &str = "harness";

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    let program = Program::start();
    if !nix::unistd::geteuid().is_root() {
        program.skipped(SUBJECT, "needs root, to mount and to attach loop devices");
        return ExitCode::SUCCESS;
    }
    match program.words().first().map(String::as_str) {
        Some("nothing") => {}
        Some("sandbox") => drop(enter()),
        Some("recorder") => recorder(&program),
        Some("resolve") => resolve(&program),
        Some("disk") => disk(&program),
        Some("proxy") => through::proxy(&program),
        Some("api") => objects::api(&program),
        _ => return all(&program),
    }
    ExitCode::SUCCESS
}

fn all(program: &Program) -> ExitCode {
    sandbox(program);
    let parts = ["recorder", "resolve", "disk", "proxy", "api"];
    let done = parts.iter().all(|part| program.again(&[part]).status().unwrap().success());
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn enter() -> Sandbox {
    Sandbox::enter(SandboxOptions::default()).unwrap()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A process that enters a sandbox and leaves it, beyond one that does nothing.
fn sandbox(program: &Program) {
    let run = |what: &str| {
        let began = Instant::now();
        assert!(program.again(&[what]).status().unwrap().success());
        ms(began.elapsed())
    };
    let mut more = Vec::new();
    for _ in 0..program.rounds(60) {
        let bare = run("nothing");
        more.push(run("sandbox") - bare);
    }
    let row = Row::new(SUBJECT, "sandbox: in and out", "ms", &more);
    program.row(&row.aim(Aim::AtMost(10.0)));
}

/// Mounts and unmounts with a recorder, with the kernel's notifications alone, and without both: of file systems, and of
/// binds, the cheapest mounts there are.
fn recorder(program: &Program) {
    const PAIRS: usize = 100;
    let sandbox = enter();
    let place = sandbox.layout().root().join("pods");
    // As often as the proxy does: at each edge of a call there are a few.
    let (often, never) = (Some(4), None);
    let pairs = |make: fn(&Path), watch: Option<&MountWatch>, reads: Option<usize>| {
        let (began, mut seen) = (Instant::now(), 0);
        for pair in 1..=PAIRS {
            make(&place);
            umount2(&place, MntFlags::empty()).unwrap();
            if reads.is_some_and(|reads| pair % reads == 0) {
                seen += watch.map_or(0, |watch| watch.drain().unwrap().len());
            }
        }
        let took = began.elapsed();
        (ms(took) * 1e3 / PAIRS as f64, seen + watch.map_or(0, |watch| watch.drain().unwrap().len()))
    };
    let rounds = program.rounds(50);
    for (kind, make) in [("file systems", memory as fn(&Path)), ("binds", |place| bind(place, place))] {
        let (mut bare, mut unread, mut recorded, mut events) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            bare.push(pairs(make, None, never).0);
            for (times, reads) in [(&mut unread, never), (&mut recorded, often)] {
                let watch = MountWatch::start().unwrap();
                let (time, seen) = pairs(make, Some(&watch), reads);
                times.push(time);
                events += seen;
            }
        }
        let all = 2 * PAIRS * rounds;
        let row = Row::new(SUBJECT, format!("recorder: mount, unmount of {kind}"), "us", &recorded);
        program.row(&row.floor(&unread).aim(Aim::Ratio(1.1)));
        program.row(&Row::new(SUBJECT, "  the kernel's notifications", "us", &unread).floor(&bare));
        let lost = 2 * all - events;
        program.row(&Row::new(SUBJECT, "  events lost", "", &[lost as f64]).aim(Aim::AtMost(0.0)));
        assert_eq!(lost, 0);
    }
}

fn memory(at: &Path) {
    mount(None::<&str>, at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

/// The look-up of one new mount, in a small and in a large mount table.
fn resolve(program: &Program) {
    let sandbox = enter();
    let top = sandbox.layout().root().join("pods");
    // Private, or each mount would be one for every peer.
    bind(&top, &top);
    mount(None::<&str>, &top, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    let place = |index: usize| top.join(index.to_string());
    let watch = MountWatch::start().unwrap();
    let one = |index: usize| {
        fs::create_dir(place(index)).unwrap();
        // Not a bind: at each of those the kernel walks through the whole table, and what is measured next would find
        // nothing of its own in the caches.
        memory(&place(index));
        let began = Instant::now();
        let events = watch.drain().unwrap();
        let took = began.elapsed();
        assert!(events.iter().any(|event| event.kind == MountEventKind::Attach && event.mount.is_some()));
        took
    };
    let times: Vec<f64> = (0..10_100).map(|index| ms(one(index)) * 1e3).collect();
    let sizes = [(300, times[300..400].to_vec()), (10_000, times[10_000..].to_vec())];
    program.row(&Row::growing(SUBJECT, "recorder: look-up of a mount", "us", &sizes).aim(Aim::Ratio(1.5)));
}

/// The same bytes onto a loop device, over memory and over a file that could fail.
fn disk(program: &Program) {
    const BYTES: u64 = 256 << 20;
    let sandbox = enter();
    let state = sandbox.layout().driver_state();
    let options = LoopOptions { direct_io: true, ..LoopOptions::default() };
    let plain = LoopDevice::create(&state, BYTES, &options).unwrap();
    let faulty = FaultDisk::create(&state, BYTES, 1).unwrap();
    let (mut over_memory, mut over_faults) = (Vec::new(), Vec::new());
    for _ in 0..program.rounds(5) {
        let rate = |took: Duration| (BYTES >> 20) as f64 / took.as_secs_f64();
        over_memory.push(rate(write(&plain.path(), BYTES)));
        over_faults.push(rate(write(&faulty.device().path(), BYTES)));
    }
    let row = Row::new(SUBJECT, "disk over a file that could fail", "MiB/s", &over_faults);
    program.row(&row.floor(&over_memory).aim(Aim::RatioAtLeast(0.5)));
    faulty.close().unwrap();
    plain.close().unwrap();
}

fn write(device: &Path, bytes: u64) -> Duration {
    const BLOCK: usize = 1 << 20;
    // Aligned, as direct writes have to be.
    let buffer = vec![0x5a_u8; 2 * BLOCK];
    let begin = buffer.as_ptr().align_offset(4096);
    let mut file: File = File::options().write(true).custom_flags(libc::O_DIRECT).open(device).unwrap();
    let began = Instant::now();
    for _ in 0..bytes / BLOCK as u64 {
        file.write_all(&buffer[begin..begin + BLOCK]).unwrap();
    }
    file.sync_all().unwrap();
    began.elapsed()
}
