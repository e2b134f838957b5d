//! Pods in and out, measured beside a bare loop that does only their calls and their changes to the tree: `cargo xtask
//! bench pod`. Needs root.
//!
//! The bare loop is made from the trace of the pods: the same requests to the same driver, and the same directories and
//! files made and removed, with nothing in between that decides, records or waits. In the kubelet's style its calls have a
//! connection each, and ask for capabilities as often; in the lean style neither. The manager is measured in this process,
//! without recorder and proxy, and once more as a case has it. Ratios travel between machines, times do not.

#[path = "pod/alone.rs"]
mod alone;
#[path = "pod/arm.rs"]
mod arm;
#[path = "pod/bare.rs"]
mod bare;
#[path = "pod/calls.rs"]
mod calls;
#[path = "pod/load.rs"]
mod load;
#[path = "pod/null.rs"]
mod null;
#[path = "pod/peers.rs"]
mod peers;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use measure::{Aim, Program, Row, quartiles};
use mimalloc::MiMalloc;
use volume_manager::ClientStyle;

use arm::{Arm, Around, Driver, Times};
use load::Load;

/// As `volproof` has it.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

const SUBJECT: &str = "pod";

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let measured = match words[..] {
        [null::SUBCOMMAND, socket] => return null::main(Path::new(socket)),
        ["--inside", ref words @ ..] => match Arm::of(words) {
            Some((arm, rounds)) => arm.measure(rounds),
            None => Err(anyhow::anyhow!("cannot read what to measure")),
        },
        _ => all(&Program::start()),
    };
    measure::ended(measured)
}

/// One pod with one volume.
const ONE: Load = Load { pods: 1, volumes: 1, block: false };

fn all(program: &Program) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        program.skipped(SUBJECT, "needs root, to mount and to attach loop devices");
        return Ok(());
    }
    let fastest = single_volume(program)?;
    recorded(program, &fastest)?;
    peers::kubernetes(program, fastest)?;
    if !program.is_short() {
        several(program)?;
    }
    block(program)?;
    system_calls(program)?;
    peers::driver(program)
}

const STYLES: [(ClientStyle, &str, f64); 2] =
    [(ClientStyle::Kubelet, "kubelet", 1.5), (ClientStyle::Lean, "lean", 1.25)];

const DRIVERS: [(Driver, &str); 2] = [(Driver::Null, "null"), (Driver::FakeCsi, "fake-csi")];

fn alone(driver: &Driver, style: ClientStyle, load: Load) -> Arm {
    Arm { around: Around::Nothing, counted: false, driver: driver.clone(), style, load }
}

/// One pod with one volume, by driver and style. Returns the times with fake-csi in the kubelet's style.
fn single_volume(program: &Program) -> Result<Times> {
    let rounds = program.rounds(30);
    let mut kept = Times::default();
    for (driver, name) in DRIVERS {
        for (style, style_name, aim) in STYLES {
            let times = alone(&driver, style, ONE).run(rounds)?;
            in_and_out(program, &format!("1 volume, {name}, {style_name}"), &times, Some(aim));
            if style == ClientStyle::Kubelet {
                cpu(program, &format!("1 volume, {name}: CPU"), &times, 3.0);
                kept = times;
            }
        }
    }
    Ok(kept)
}

/// The same with recorder and proxy, and as a case has it, each with its share beyond the kernel's own notifications.
fn recorded(program: &Program, alone_times: &Times) -> Result<()> {
    let median = |rounds: &[f64]| quartiles(rounds).median;
    let whole = |times: &Times| median(&times.way_in) + median(&times.way_out);
    let floor = |times: &Times| median(&times.floor_in) + median(&times.floor_out);
    let arounds = [
        (Around::Recorder, "recorded", "recorder and proxy", Some(Aim::AtMost(1.25))),
        (Around::Case, "in a case", "recorder, proxy, processes and controllers of a case", None),
    ];
    for (around, name, added, aim) in arounds {
        let arm = Arm { around, ..alone(&Driver::FakeCsi, ClientStyle::Kubelet, ONE) };
        let times = arm.run(program.rounds(30))?;
        in_and_out(program, &format!("1 volume, fake-csi, {name}"), &times, None);
        // The floors differ by what the kernel's own notifications cost.
        let notifications = floor(&times) - floor(alone_times);
        let share = (whole(&times) - notifications) / whole(alone_times);
        let row = Row::new(SUBJECT, added, "x", &[share]);
        program.row(&match aim {
            Some(aim) => row.aim(aim),
            None => row,
        });
    }
    Ok(())
}

/// Several volumes of one pod, and several pods at once, beside as many bare loops at once.
fn several(program: &Program) -> Result<()> {
    // A hundred images of fake-csi are not ready within a minute in the sandbox of a case.
    let many: &[(usize, usize, usize)] = &[(1, 10, 15), (1, 100, 7), (100, 1, 7)];
    let loads = [(Driver::Null, "null", many), (Driver::FakeCsi, "fake-csi", &many[..1])];
    for (driver, name, loads) in loads {
        for &(pods, volumes, rounds) in loads {
            let load = Load { pods, volumes, block: false };
            let times = alone(&driver, ClientStyle::Kubelet, load).run(program.rounds(rounds))?;
            let what = match pods {
                1 => format!("{volumes} volumes, {name}"),
                _ => format!("{pods} pods at once, {name}"),
            };
            in_and_out(program, &what, &times, Some(1.25));
            if volumes == 100 {
                cpu(program, &format!("{what}: CPU"), &times, 150.0);
            }
        }
    }
    Ok(())
}

fn in_and_out(program: &Program, name: &str, times: &Times, aim: Option<f64>) {
    let ways = [("in", &times.way_in, &times.floor_in), ("out", &times.way_out, &times.floor_out)];
    for (way, rounds, floor) in ways {
        let row = Row::new(SUBJECT, format!("{name}: {way}"), "ms", rounds).floor(floor);
        program.row(&match aim {
            Some(aim) => row.aim(Aim::Ratio(aim)),
            None => row,
        });
    }
}

/// The CPU time of the manager for the way in and the way out.
fn cpu(program: &Program, name: &str, times: &Times, aim: f64) {
    let row = Row::new(SUBJECT, name, "ms", &times.cpu).floor(&times.floor_cpu);
    program.row(&row.aim(Aim::AtMost(aim)));
}

fn block(program: &Program) -> Result<()> {
    let arm = alone(&Driver::FakeCsi, ClientStyle::Kubelet, Load { block: true, ..ONE });
    let times = arm.run(program.rounds(30))?;
    program.row(&Row::new(SUBJECT, "1 block volume, fake-csi: in", "ms", &times.way_in));
    program.row(&Row::new(SUBJECT, "1 block volume, fake-csi: out", "ms", &times.way_out));
    Ok(())
}

fn system_calls(program: &Program) -> Result<()> {
    if !calls::can_count() {
        program.skipped("system calls a pod", "strace is not installed");
        return Ok(());
    }
    for (style, style_name, _) in STYLES {
        let arm = Arm { counted: true, ..alone(&Driver::Null, style, ONE) };
        let Some((ours, floor)) = arm.run(program.rounds(10))?.calls else { continue };
        let name = format!("1 volume, null, {style_name}: system calls");
        program.row(&Row::new(SUBJECT, name, "", &[ours]).floor(&[floor]));
    }
    Ok(())
}
