//! SIGKILL, at random moments, of each process of a run: afterwards the machine is as it was before.
//!
//! Compared are the mount table, the bound loop devices, the run's processes, and the files in directories that a run uses
//! or must not use; for a driver that ran before, also its volumes. Each role is killed at 3 moments, at 50 with `cargo
//! xtask test --thorough`, or at `VOLPROOF_MOMENTS`.
//!
//! The control is in the test of the janitor: if janitor and run are killed together, something has to be left for `sweep`.
//! Otherwise these tests would see nothing.

use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serial_test::serial;
use tests::{Ended, Process, Residue, Role, RunningDriver, Volproof, has_root, is_thorough, settle};

/// The run to kill: cases with file systems, block volumes and restarts, some of them concurrent.
const RUN: &str = "run csi::block csi::lifecycle csi::recovery --jobs 2 --timeout 20s";

/// The same on a push: a few of each kind.
const SHORT_RUN: &str = "run csi::block csi::lifecycle::file_system_is_set_up_and_torn_down \
                         csi::recovery::driver_killed_during_publish --jobs 2 --timeout 20s";

/// A report directory in the run's own directory: a case whose driver was killed fails, and its logs stay.
const REPORT: &str = "--report out";

/// The limit for the machine to come to rest. It is only reached in a failure.
const PATIENCE: Duration = Duration::from_secs(30);

fn moments() -> u32 {
    let asked = std::env::var("VOLPROOF_MOMENTS").ok().and_then(|moments| moments.parse().ok());
    asked.unwrap_or_else(|| if is_in_full() { 50 } else { 3 })
}

fn is_in_full() -> bool {
    is_thorough("each process is killed at 3 moments of a short run, not at 50 of a longer one")
}

/// The privileges of the run, and the starter of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As root; the run starts the driver.
    Host,
    /// In a user namespace; the run starts the driver.
    Rootless,
    /// With a driver that runs already, on the machine itself.
    Socket,
}

/// The preparations for a mode.
struct Ground {
    mode: Mode,
    driver: Option<RunningDriver>,
}

impl Ground {
    fn prepare(mode: Mode) -> Ground {
        let driver = (mode == Mode::Socket).then(RunningDriver::start);
        Ground { mode, driver }
    }

    fn run(&self) -> Volproof {
        let volproof = Volproof::new().args(if is_in_full() { RUN } else { SHORT_RUN });
        match (self.mode, &self.driver) {
            (Mode::Host, _) => volproof,
            (Mode::Rootless, _) => volproof.args("--tier rootless"),
            (Mode::Socket, driver) => {
                volproof.arg("--socket").arg(driver.as_ref().expect("it was started").socket())
            }
        }
    }

    /// The volumes of the driver, if it outlives the run.
    fn volumes(&self) -> Vec<String> {
        self.driver.as_ref().map(RunningDriver::volumes).unwrap_or_default()
    }
}

/// Random moments, the same in each run of the test: xorshift, since nothing here needs to be unpredictable.
struct Moments {
    state: u64,
    whole: Duration,
}

impl Moments {
    /// Moments within an undisturbed run. Each mode is run undisturbed once, to see how long that takes.
    fn within_a_run(ground: &Ground, seed: u64) -> Moments {
        static WHOLE: [OnceLock<Duration>; 3] = [const { OnceLock::new() }; 3];
        let whole = WHOLE[ground.mode as usize].get_or_init(|| {
            // Built before the clock starts, which may take minutes.
            let run = ground.run();
            let began = Instant::now();
            let ended = run.run();
            assert_eq!(ended.code, Some(0), "the undisturbed run: {}", ended.told());
            began.elapsed()
        });
        Moments { state: seed, whole: *whole }
    }

    fn next(&mut self) -> Duration {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.whole.mul_f64((self.state % 10_000) as f64 / 10_000.0)
    }
}

/// Waits for the moment, then for a process of the role, and kills it. False if the run ended first.
fn kill_one(run: &mut Child, mark: &str, role: Role, moment: Duration) -> bool {
    std::thread::sleep(moment);
    loop {
        let marked = Process::marked(mark);
        if marked.iter().filter(|process| process.role == role).any(|process| process.kill()) {
            return true;
        }
        if run.try_wait().expect("the run can be waited for").is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The run's end, which must come by itself after any of its processes was killed.
fn end_of(mut run: Child, directory: tempfile::TempDir, moment: &str) -> Ended {
    let deadline = Instant::now() + 2 * PATIENCE;
    while run.try_wait().expect("the run can be waited for").is_none() {
        if Instant::now() > deadline {
            run.kill().expect("the run can be killed");
            panic!("{moment}: the run did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ended::of(run.wait_with_output().expect("its output"), directory)
}

/// Kills a role at each moment, lets `after` clean up if that is needed, and compares.
///
/// `after` returns whether it has seen the situation that the test is about; kills go on until it has.
fn kill_at_each_moment(
    mode: Mode,
    role: Role,
    mut after: impl FnMut(u32, &mut Child, &Residue, &str) -> bool,
) {
    if !has_root() {
        return;
    }
    let ground = Ground::prepare(mode);
    let mut at = Moments::within_a_run(&ground, 0x5eed_0001 + 16 * mode as u64 + role as u64);
    let moments = moments();
    let (mut killed, mut tries, mut seen) = (0, 0, false);
    while killed < moments || !seen {
        tries += 1;
        assert!(
            tries < 10 * moments + 10,
            "{role:?} killed {killed} times in {tries} runs; the test saw what it is about: {seen}"
        );
        let moment = at.next();
        let (name, mark) = Residue::mark();
        let before = Residue::see(&mark);
        let report = if matches!(role, Role::Run | Role::Janitor) { "" } else { REPORT };
        let began = Instant::now();
        let (mut run, directory) = ground.run().args(report).env(name, &mark).start();
        let hit = kill_one(&mut run, &mark, role, moment);
        if !hit {
            // The undisturbed run took longer, when the machine had more to do.
            at.whole = at.whole.min(began.elapsed());
        }
        seen |= after(killed, &mut run, &before, &mark);
        let what = format!("{role:?} killed {moment:?} after the start");
        let ended = end_of(run, directory, &what);
        let mut left = settle(&before, &mark, PATIENCE);
        left.extend(ended.temporary_files());
        left.extend(ground.volumes());
        if !left.is_empty() {
            let why = reasons_of_janitors();
            // A second sweep reports why the first one failed.
            let swept = Volproof::new().args("sweep").run();
            panic!("{what}: left {left:#?}\n{}\njanitors: {why:?}\nsweep: {}", ended.told(), swept.told());
        }
        killed += u32::from(hit);
    }
}

/// The reasons of janitors that gave up, from beside their ledgers.
fn reasons_of_janitors() -> Vec<String> {
    let runs = std::fs::read_dir("/run/volproof").into_iter().flatten().flatten();
    runs.filter_map(|run| std::fs::read_to_string(run.path().join("left")).ok()).collect()
}

/// Every other time the run is killed with its janitor, so that only `sweep` is left to clean up. That something is
/// left for it at least once is the control of these tests.
fn kill_the_janitor(mode: Mode) {
    kill_at_each_moment(mode, Role::Janitor, |round, run, before, mark| {
        if round % 2 == 0 {
            return false;
        }
        // A thread of it that is in the kernel holds the lock of the run for longer than its mark can be seen.
        run.kill().and_then(|()| run.wait()).expect("the run can be killed and waited for");
        // Namespaces end by themselves, with their processes; the leftovers after that are in the ledger. Any run that starts
        // now sweeps them as well: they are looked at before anything else is waited for.
        let deadline = Instant::now() + PATIENCE;
        while !Process::marked(mark).is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = Residue::see(mark).since(before);
        let swept = Volproof::new().args("sweep").run();
        assert_eq!(swept.code, Some(0), "{}", swept.told());
        !left.is_empty()
    });
}

macro_rules! killed {
    ($($name:ident: $mode:ident, $role:ident;)+) => {
        $(#[test]
        #[serial]
        fn $name() {
            kill_at_each_moment(Mode::$mode, Role::$role, |_, _, _, _| true);
        })+
    };
}

killed! {
    a_run_that_is_killed_leaves_nothing: Host, Run;
    a_worker_that_is_killed_leaves_nothing: Host, Worker;
    a_node_that_is_killed_leaves_nothing: Host, Node;
    a_driver_that_is_killed_leaves_nothing: Host, Driver;
    a_rootless_run_that_is_killed_leaves_nothing: Rootless, Run;
    a_rootless_worker_that_is_killed_leaves_nothing: Rootless, Worker;
    a_rootless_node_that_is_killed_leaves_nothing: Rootless, Node;
    a_rootless_driver_that_is_killed_leaves_nothing: Rootless, Driver;
    a_run_on_a_running_driver_that_is_killed_leaves_nothing: Socket, Run;
    a_worker_on_a_running_driver_that_is_killed_leaves_nothing: Socket, Worker;
    a_node_on_a_running_driver_that_is_killed_leaves_nothing: Socket, Node;
}

#[test]
#[serial]
fn leftovers_of_a_killed_janitor_are_swept() {
    kill_the_janitor(Mode::Host);
}

#[test]
#[serial]
fn leftovers_of_a_killed_rootless_janitor_are_swept() {
    kill_the_janitor(Mode::Rootless);
}

#[test]
#[serial]
fn leftovers_on_a_running_driver_are_swept() {
    kill_the_janitor(Mode::Socket);
}

/// Neither the runs that die beside it nor what their janitors take away are any business of a run's.
#[test]
#[serial]
fn a_run_is_not_disturbed_by_those_that_are_killed_beside_it() {
    if !has_root() {
        return;
    }
    let ground = Ground::prepare(Mode::Host);
    let mut at = Moments::within_a_run(&ground, 0x5eed_0002);
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let (lasting, directory) = ground.run().args("--repeat 5").env(name, &mark).start();
    for _ in 0..moments().min(10) {
        let (name, mark) = Residue::mark();
        let (mut run, directory) = ground.run().env(name, &mark).start();
        kill_one(&mut run, &mark, Role::Run, at.next());
        end_of(run, directory, "a run beside another");
    }
    let ended = end_of(lasting, directory, "the run that was left alone");
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);
}
