//! What the harness itself costs, as ratios within one run: a sandbox, the recorder, resolving a mount, a disk that
//! can fail.
//!
//! Ratios travel between machines, times do not; where an aim is a time it is printed beside. Each measurement is a
//! process of its own, since a sandbox can only be entered once. Needs root. `cargo xtask bench harness`

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use harness::fault_fs::FaultDisk;
use harness::guard::Guard;
use harness::loop_device::{LoopDevice, LoopOptions};
use harness::observe::{MountEventKind, MountWatch};
use harness::sandbox::{Sandbox, SandboxOptions};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to mount and to attach loop devices");
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "--inside", "nothing"] => {}
        [_, "--inside", "sandbox"] => drop(enter()),
        [_, "--inside", "recorder"] => recorder(),
        [_, "--inside", "resolve"] => resolve(),
        [_, "--inside", "disk"] => disk(),
        _ => return all(),
    }
    ExitCode::SUCCESS
}

fn all() -> ExitCode {
    sandbox();
    let done = ["recorder", "resolve", "disk"].iter().all(|what| inside(what).status().unwrap().success());
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn inside(what: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--inside", what]).stdin(Stdio::null());
    command
}

fn enter() -> Sandbox {
    Sandbox::enter(SandboxOptions::default()).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64()
}

/// A process that enters a sandbox and leaves it, beside one that does nothing.
fn sandbox() {
    let run = |what: &str| {
        let began = Instant::now();
        assert!(inside(what).status().unwrap().success());
        began.elapsed()
    };
    let (mut bare, mut boxed) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        bare.push(run("nothing"));
        boxed.push(run("sandbox"));
    }
    let (bare, boxed) = (median(bare), median(boxed));
    let more = boxed.saturating_sub(bare);
    println!(
        "sandbox    in and out {:.1} ms at the median, {:.1} times a bare process   (aim: 10 ms)",
        milliseconds(more),
        ratio(boxed, bare)
    );
}

/// Mounts and unmounts, with and without a recorder: of file systems, and of binds, the cheapest mounts there are. The
/// kernel's notifications without a reader are the lower bound of the cost.
fn recorder() {
    const PAIRS: usize = 100;
    const ROUNDS: usize = 50;
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
        (took, seen + watch.map_or(0, |watch| watch.drain().unwrap().len()))
    };
    for (kind, make) in [("file systems", memory as fn(&Path)), ("binds", |place| bind(place, place))] {
        let (mut bare, mut unread, mut recorded, mut events) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            bare.push(pairs(make, None, never).0);
            for (times, reads) in [(&mut unread, never), (&mut recorded, often)] {
                let watch = MountWatch::start().unwrap();
                let (time, seen) = pairs(make, Some(&watch), reads);
                times.push(time);
                events += seen;
            }
        }
        let all = 2 * PAIRS * ROUNDS;
        let lost = 2 * all - events;
        let bare = median(bare);
        println!(
            "recorder   {all} mounts and unmounts of {kind} take {:.2} times as long ({:.2} if nobody reads it), {lost} \
             events lost   (aim: 1.1, none)",
            ratio(median(recorded), bare),
            ratio(median(unread), bare),
        );
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
fn resolve() {
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
    let times: Vec<Duration> = (0..10_100).map(one).collect();
    let (small, large) = (median(times[300..400].to_vec()), median(times[10_000..].to_vec()));
    println!(
        "resolve    one mount among 10000 takes {:.2} times as long as among 300   (aim: constant)",
        ratio(large, small)
    );
}

/// The same bytes onto a loop device, over memory and over a file that could fail.
fn disk() {
    const BYTES: u64 = 256 << 20;
    let sandbox = enter();
    let state = sandbox.layout().driver_state();
    let options = LoopOptions { direct_io: true, ..LoopOptions::default() };
    let plain = LoopDevice::create(&state, BYTES, &options).unwrap();
    let faulty = FaultDisk::create(&state, BYTES, 1).unwrap();
    let (mut over_memory, mut over_faults) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        over_memory.push(write(&plain.path(), BYTES));
        over_faults.push(write(&faulty.device().path(), BYTES));
    }
    println!(
        "disk       over a file that could fail {:.2} times the throughput of one over memory   (aim: 0.5)",
        ratio(median(over_memory), median(over_faults))
    );
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
