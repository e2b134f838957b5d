//! Writes a random script for a scenario.

use std::time::Duration;

use fastrand::Rng;

use super::{Attributes, CrashPoint, Damage, Origin, Scenario, Step};

/// The state that keeps a script sensible: only pods that exist are synced and removed.
pub(super) struct Writer {
    random: Rng,
    volumes: usize,
    /// Whether a volume is for one pod at a time.
    alone: bool,
    grows: bool,
    vanish: bool,
    damage: bool,
    controlled: bool,
    neighbour: bool,
    provisioned: bool,
    /// The pods of the node, with their volumes.
    alive: Vec<(u32, Vec<usize>)>,
    /// The pods of the other node.
    elsewhere: Vec<u32>,
    next_pod: u32,
    next_snapshot: u32,
    driver_up: bool,
    api_up: bool,
}

impl Writer {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            random: Rng::with_seed(scenario.seed ^ 0x5eed),
            volumes: scenario.volumes.len(),
            alone: scenario.alone,
            grows: scenario.grows,
            vanish: scenario.vanish,
            damage: scenario.damage,
            controlled: scenario.controlled,
            neighbour: scenario.neighbour,
            provisioned: scenario.provisioned,
            alive: Vec::new(),
            elsewhere: Vec::new(),
            next_pod: 0,
            next_snapshot: 0,
            driver_up: true,
            api_up: true,
        }
    }

    pub(super) fn write(mut self, steps: usize) -> Vec<Step> {
        (0..steps).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        if self.neighbour && self.random.u32(..7) == 0 {
            return self.elsewhere();
        }
        if self.provisioned && self.random.u32(..3) == 0 {
            return self.users();
        }
        match self.random.u32(..100) {
            0..22 => self.add(),
            22..34 => self.with_pod(|pod| Step::Sync { pod }),
            34..38 => self.with_pod(|pod| Step::Terminate { pod }),
            38..54 => self.remove(),
            54..56 if self.vanish && !self.alive.is_empty() => Step::CrashWithout { pod: self.take_pod() },
            54..58 if self.damage => self.crash_with_damage(),
            54..58 => Step::Crash { away: Duration::from_millis(self.random.u64(..5_000)) },
            58..64 => self.crash(),
            64..68 => self.toggle_driver(),
            68..71 => self.toggle_api(),
            71..80 if self.grows => Step::Grow { volume: self.random.usize(..self.volumes) },
            80..82 if self.controlled => Step::CrashController,
            // Controllers need several requests for an act, of up to a second each.
            71..90 if self.controlled && self.random.bool() => {
                Step::Pass(Duration::from_millis(self.random.u64(..4_000)))
            }
            71..90 => Step::Pass(Duration::from_millis(self.random.u64(..400))),
            _ => Step::Pass(Duration::from_millis(self.random.u64(..40_000))),
        }
    }

    fn add(&mut self) -> Step {
        if self.alive.len() >= 4 {
            return self.remove();
        }
        let held = |volume: &usize| self.alone && self.alive.iter().any(|(_, held)| held.contains(volume));
        let free: Vec<usize> = (0..self.volumes).filter(|volume| !held(volume)).collect();
        let Some(one) = self.random.choice(&free).copied() else { return self.remove() };
        let mut volumes: Vec<usize> = free.into_iter().filter(|_| self.random.bool()).collect();
        if volumes.is_empty() {
            volumes.push(one);
        }
        let pod = self.number();
        self.alive.push((pod, volumes.clone()));
        Step::AddPod { pod, volumes }
    }

    /// A step on the other node, or the loss of this one.
    fn elsewhere(&mut self) -> Step {
        match self.random.u32(..6) {
            0 => {
                self.alive.clear();
                Step::LoseNode { away: Duration::from_secs(self.random.u64(370..600)) }
            }
            1 | 2 if !self.elsewhere.is_empty() => {
                let index = self.random.usize(..self.elsewhere.len());
                Step::RemoveElsewhere { pod: self.elsewhere.remove(index) }
            }
            _ => {
                let pod = self.number();
                self.elsewhere.push(pod);
                let mut volumes: Vec<usize> = (0..self.volumes).filter(|_| self.random.bool()).collect();
                if volumes.is_empty() {
                    volumes.push(self.random.usize(..self.volumes));
                }
                Step::AddElsewhere { pod, volumes }
            }
        }
    }

    /// A user's step with claims and snapshots, or a crash of the controllers.
    fn users(&mut self) -> Step {
        let volume = self.random.usize(..self.volumes);
        match self.random.u32(..20) {
            0..5 => {
                let class = if self.random.u32(..3) == 0 { Some(self.attributes()) } else { None };
                Step::AddClaim { volume, from: self.origin(), class }
            }
            5..9 => Step::DeleteClaim { volume },
            9..12 => {
                self.next_snapshot += 1;
                Step::AddSnapshot { snapshot: self.next_snapshot - 1, volume }
            }
            12..14 => match self.next_snapshot {
                0 => Step::Pass(Duration::from_millis(10)),
                known => Step::DeleteSnapshot { snapshot: self.random.u32(..known) },
            },
            14 => Step::DeleteVolume { volume },
            15..17 => {
                let class = self.attributes();
                Step::Modify { volume, class }
            }
            _ => {
                let (point, most) =
                    if self.random.bool() { (CrashPoint::Call, 8) } else { (CrashPoint::Request, 40) };
                Step::CrashControllerAt { point, number: self.random.u32(1..most), after: self.random.bool() }
            }
        }
    }

    fn attributes(&mut self) -> Attributes {
        if self.random.bool() { Attributes::Gold } else { Attributes::Silver }
    }

    fn origin(&mut self) -> Option<Origin> {
        match self.random.u32(..3) {
            0 => Some(Origin::Volume(self.random.usize(..self.volumes))),
            1 if self.next_snapshot > 0 => Some(Origin::Snapshot(self.random.u32(..self.next_snapshot))),
            _ => None,
        }
    }

    fn number(&mut self) -> u32 {
        self.next_pod += 1;
        self.next_pod - 1
    }

    fn remove(&mut self) -> Step {
        if self.alive.is_empty() {
            return Step::Pass(Duration::from_millis(10));
        }
        Step::Remove { pod: self.take_pod() }
    }

    fn crash(&mut self) -> Step {
        let (point, most) = match self.random.u32(..3) {
            0 => (CrashPoint::Kernel, 60),
            1 => (CrashPoint::Call, 12),
            _ => (CrashPoint::Request, 12),
        };
        Step::CrashAt { point, number: self.random.u32(1..most), after: self.random.bool() }
    }

    fn crash_with_damage(&mut self) -> Step {
        let damage = Damage::ALL[self.random.usize(..Damage::ALL.len())];
        let which = self.random.usize(..100);
        let goes = !self.alive.is_empty() && self.random.bool();
        Step::CrashWithDamage { damage, which, without: goes.then(|| self.take_pod()) }
    }

    /// Removes a random pod and returns its number.
    fn take_pod(&mut self) -> u32 {
        let index = self.random.usize(..self.alive.len());
        self.alive.remove(index).0
    }

    fn with_pod(&mut self, step: impl FnOnce(u32) -> Step) -> Step {
        match self.random.choice(&self.alive) {
            Some((pod, _)) => step(*pod),
            None => Step::Pass(Duration::from_millis(10)),
        }
    }

    fn toggle_driver(&mut self) -> Step {
        self.driver_up = !self.driver_up;
        if self.driver_up { Step::StartDriver } else { Step::KillDriver }
    }

    fn toggle_api(&mut self) -> Step {
        self.api_up = !self.api_up;
        if self.api_up { Step::ApiBack } else { Step::ApiAway }
    }
}
