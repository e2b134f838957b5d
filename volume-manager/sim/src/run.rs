//! Plays a script in the simulated world and reports the outcome.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use contracts::event::TraceLine;
use contracts::rule::{Rest, Violation};
use tokio::runtime::Builder;
use volume_manager::PodState;

use crate::claims;
use crate::claims::groups;
use crate::script::{Scenario, Step};
use crate::world::{World, leftovers};

/// The time for everything to settle after the faults stop: the longest back-off, a call up to its deadline,
/// and another back-off.
const BOUND: Duration = Duration::from_secs(122 + 120 + 122 + 60);

/// The end of a simulation.
#[derive(Debug)]
pub enum Outcome {
    /// Every contract was kept, and nothing was left behind.
    Clean(Statistics),
    /// A contract was broken, or the end state was wrong.
    Violated(Violated),
}

/// A violation, with everything needed to reproduce and to explain it.
#[derive(Debug)]
pub struct Violated {
    pub scenario: Scenario,
    /// The steps that were played.
    pub steps: Vec<Step>,
    /// The contracts that were broken.
    pub violations: Vec<Violation>,
    /// The differences from the expected end state, as text.
    pub unfinished: Vec<String>,
    pub trace: Vec<TraceLine>,
}

/// The size of a simulation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    /// Lines of the trace.
    pub events: u64,
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
}

impl Violated {
    /// Distinguishes violations: the contract and the cause, or the kind of leftover.
    pub fn signature(&self) -> String {
        match self.violations.first() {
            Some(violation) => format!("{} {}", violation.contract, violation.cause),
            None => "unfinished".to_owned(),
        }
    }
}

impl fmt::Display for Violated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}", self.scenario.seed, self.scenario)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>3}  {step}", number + 1)?;
        }
        for violation in &self.violations {
            write!(f, "{} {}: {}", violation.contract, violation.cause, violation.detail)?;
            writeln!(f, " (line {})", violation.seq)?;
        }
        self.unfinished.iter().try_for_each(|left| writeln!(f, "left: {left}"))
    }
}

/// Plays these steps in this scenario, on a paused clock in this thread.
pub fn simulate(scenario: &Scenario, steps: &[Step]) -> Outcome {
    let (world, unfinished) = play(scenario, steps);
    outcome(&world, scenario, steps, unfinished)
}

/// The whole trace of these steps, as lines of JSON.
pub fn trace_of(scenario: &Scenario, steps: &[Step]) -> String {
    let (world, _) = play(scenario, steps);
    let line = |line: &TraceLine| serde_json::to_string(line).expect("a line is plain data") + "\n";
    world.trace.lines().iter().map(line).collect()
}

fn play(scenario: &Scenario, steps: &[Step]) -> (World, Vec<String>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O asks the system for nothing");
    runtime.block_on(async {
        let mut world = World::new(scenario);
        let _hearing = world.trace.hear_effects();
        world.start_manager();
        for step in steps {
            take(&mut world, step).await;
            if world.trace.is_violated() {
                return (world, Vec::new());
            }
        }
        let unfinished = settle(&mut world).await;
        (world, unfinished)
    })
}

async fn take(world: &mut World, step: &Step) {
    match step {
        Step::AddPod { pod, volumes } => world.add_pod(*pod, volumes),
        Step::Sync { pod } => world.sync(*pod),
        Step::Terminate { pod } => world.set_state(*pod, PodState::Terminating),
        Step::Remove { pod } => world.remove_pod(*pod),
        Step::Crash { away } => restart(world, *away).await,
        Step::CrashWithout { pod } => {
            world.stop_manager().await;
            world.remove_pod(*pod);
            restart(world, Duration::from_secs(1)).await;
        }
        Step::CrashWithDamage { damage, which, without } => {
            world.stop_manager().await;
            world.damage(*damage, *which);
            without.iter().for_each(|pod| world.remove_pod(*pod));
            restart(world, Duration::from_secs(1)).await;
        }
        Step::CrashAt { point, number, after } => world.crash.order(*point, *number, *after),
        Step::KillDriver => world.kill_driver(),
        Step::StartDriver => world.start_driver(),
        Step::CrashController => {
            world.stop_controllers();
            world.start_controllers();
        }
        Step::CrashControllerAt { point, number, after } => {
            world.controllers_crash.order(*point, *number, *after);
        }
        Step::AddClaim { volume, from, class } => {
            claims::add(&world.api, &world.scenario, *volume, *from, *class);
        }
        Step::DeleteClaim { volume } => claims::delete(&world.api, *volume),
        Step::DeleteVolume { volume } => claims::delete_volume(&world.api, *volume),
        Step::AddSnapshot { snapshot, volume } => claims::take_snapshot(&world.api, *snapshot, *volume),
        Step::DeleteSnapshot { snapshot } => claims::delete_snapshot(&world.api, *snapshot),
        Step::AddGroup { group, volumes } => groups::take(&world.api, *group, volumes),
        Step::DeleteGroup { group } => groups::delete(&world.api, *group),
        Step::DeleteMember { group, volume } => groups::delete_member(&world.api, *group, *volume),
        Step::Modify { volume, class } => claims::modify(&world.api, *volume, *class),
        Step::AddElsewhere { pod, volumes } => world.add_elsewhere(*pod, volumes),
        Step::RemoveElsewhere { pod } => world.remove_elsewhere(*pod),
        Step::LoseNode { away } => {
            world.stop_manager().await;
            world.lose_node();
            pass_without_the_node(world, *away).await;
            world.find_node();
            world.start_manager();
        }
        Step::Grow { volume } => world.grow(*volume),
        Step::ApiAway => world.api.set_away(true),
        Step::ApiBack => world.api.set_away(false),
        Step::Pass(time) => pass(world, *time).await,
    }
    // A short pause, so that the manager sees one step before the next.
    pass(world, Duration::from_micros(10)).await;
}

/// Lets time pass. A manager that crashes meanwhile starts again after a second.
async fn pass(world: &mut World, time: Duration) {
    let (crashed, controllers_crashed) = (world.crash.crashed(), world.controllers_crash.crashed());
    let until = tokio::time::Instant::now() + time;
    loop {
        tokio::select! {
            biased;
            () = crashed.notified() => restart(world, Duration::from_secs(1)).await,
            () = controllers_crashed.notified() => restart_controllers(world).await,
            () = tokio::time::sleep_until(until) => return,
        }
    }
}

/// Lets time pass while the node is lost.
async fn pass_without_the_node(world: &mut World, time: Duration) {
    let crashed = world.controllers_crash.crashed();
    let until = tokio::time::Instant::now() + time;
    loop {
        tokio::select! {
            biased;
            () = crashed.notified() => restart_controllers(world).await,
            () = tokio::time::sleep_until(until) => return,
        }
    }
}

async fn restart_controllers(world: &mut World) {
    world.stop_controllers();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.start_controllers();
}

async fn restart(world: &mut World, away: Duration) {
    world.stop_manager().await;
    tokio::time::sleep(away).await;
    world.start_manager();
}

/// Ends all faults and waits: first everything wanted must be mounted, then nothing may be left.
async fn settle(world: &mut World) -> Vec<String> {
    world.heal();
    pass(world, world.until_heard()).await;
    world.has_heard();
    for number in world.present() {
        if !world.running().iter().any(|(running, _)| *running == number) {
            world.remove_pod(number);
        }
    }
    world.add_missing_claims();
    pass(world, BOUND).await;
    if world.scenario.provisioned {
        // Claims that were deleted during the wait are missing now.
        world.add_missing_claims();
        pass(world, BOUND * 2).await;
    }
    if world.insist_on_growth() {
        pass(world, BOUND).await;
    }
    let mut unfinished = world.not_grown();
    for (number, pod) in world.running() {
        let manager = world.manager().expect("it was started above").clone();
        match (manager.wait_mounted(&pod, BOUND).await, world.forbidden(number)) {
            (Err(_), None) if world.lacks_a_volume(number) => {}
            (Err(error), None) => unfinished.push(format!("pod {number} does not get its volumes: {error}")),
            (Ok(()), Some(why)) => unfinished.push(format!("pod {number} gets a volume that is {why:?}")),
            _ => {}
        }
    }
    let pods: BTreeSet<String> = world.running().into_iter().map(|(_, pod)| pod.to_string()).collect();
    world.sweep().await;
    world.trace.rest(&Rest { pods });
    for number in world.present() {
        world.remove_pod(number);
    }
    if world.scenario.provisioned {
        claims::delete_all(&world.api);
        pass(world, BOUND).await;
    }
    pass(world, BOUND).await;
    world.sweep().await;
    world.trace.rest(&Rest::default());
    let (kept, wrong) = world.unexplained().await;
    let left = leftovers(world).into_iter();
    unfinished.extend(left.filter(|left| !kept.iter().any(|target| left.ends_with(target))));
    unfinished.extend(wrong);
    unfinished
}

fn outcome(world: &World, scenario: &Scenario, steps: &[Step], unfinished: Vec<String>) -> Outcome {
    let violations = world.trace.violations();
    if violations.is_empty() && unfinished.is_empty() {
        let simulated_ms = world.trace.last_ms().unwrap_or_default() as u64;
        return Outcome::Clean(Statistics { events: world.trace.len() as u64, simulated_ms });
    }
    let trace = world.trace.lines();
    Outcome::Violated(Violated {
        scenario: scenario.clone(),
        steps: steps.to_vec(),
        violations,
        unfinished,
        trace,
    })
}
