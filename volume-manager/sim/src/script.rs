//! What is played: a scenario and its steps, both from a seed.

use std::fmt;
use std::time::Duration;

use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use fastrand::Rng;

pub use crate::damage::Damage;

/// What the world is like before the first step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The seed of all later decisions, faults included.
    pub seed: u64,
    /// The volumes: whether each is a device.
    pub volumes: Vec<bool>,
    /// What the driver's node service says it can do.
    pub capabilities: Vec<Capability>,
    /// Whether the manager keeps its connection to the driver.
    pub lean: bool,
    /// How many in a thousand steps of the kernel fail or stall.
    pub kernel_faults: u32,
    /// How many in a thousand calls to the driver fail or stall.
    pub driver_faults: u32,
    /// Whether an API that is away takes requests and never answers.
    pub api_hangs: bool,
    /// How long a request to the API and its answer may take, each. No time at all if it is a fast one.
    pub api_delay: Duration,
    /// Whether the driver wants its volumes published again at each sync of their pods.
    pub republishes: bool,
    /// Whether pods name their first volume twice.
    pub named_twice: bool,
    /// Whether volumes must be attached.
    pub attachable: bool,
    /// Whether a controller attaches and detaches them; otherwise they are attached from the beginning.
    pub controlled: bool,
    /// Whether volumes have a secret, each for one of its calls.
    pub secrets: bool,
    /// Whether each volume is for one pod at a time, which has it with the label it runs with.
    pub alone: bool,
    /// Whether pods give their volumes a group.
    pub grouped: bool,
    /// Whether pods have an emptyDir as well.
    pub scratch: bool,
    /// Whether pods name a volume that none of their containers uses.
    pub unused: bool,
    /// Whether some pods have a volume that is made for them.
    pub ephemeral: bool,
    /// Whether some pods have a volume that is written in them, and that the driver makes for them.
    pub inline: bool,
    /// Whether the driver is told of the pod it publishes for.
    pub tells_pods: bool,
    /// Whether the driver asks for tokens of the pod's account, which do not last.
    pub tokens: Option<Tokens>,
    /// Whether some pods ask for a volume that they may not have. They never get all of theirs.
    pub forbidden: bool,
    /// Whether volumes are grown.
    pub grows: bool,
    /// Whether claims write down how far growing has come.
    pub records_growth: bool,
    /// Whether pods go while the manager is away.
    pub vanish: bool,
    /// Whether there is a second node that wants the same volumes. Then the first may be lost.
    pub neighbour: bool,
    /// Whether volumes are for one node at a time.
    pub one_node: bool,
    /// Whether what the manager has on disk is damaged while it is away.
    pub damage: bool,
    /// Whether controllers make the volumes for claims that a user writes and deletes; otherwise they exist from the
    /// beginning.
    pub provisioned: bool,
    /// How many in a thousand requests of the controllers get no answer, whether they take effect or not.
    pub api_faults: u32,
}

/// Where a driver wants the tokens that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// In the context of the volume.
    InContext,
    /// Among the secrets.
    InSecrets,
}

/// One thing that is done to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A new pod that uses these volumes is bound to the node.
    AddPod {
        /// Its number.
        pod: u32,
        /// The volumes, by their place in [`Scenario::volumes`].
        volumes: Vec<usize>,
    },
    /// A pod is synced: its owner waits for its volumes.
    Sync {
        /// Its number.
        pod: u32,
    },
    /// A pod's containers are told to end.
    Terminate {
        /// Its number.
        pod: u32,
    },
    /// A pod's containers are gone, and its object with them.
    Remove {
        /// Its number.
        pod: u32,
    },
    /// The manager crashes where it stands, and starts again after a while.
    Crash {
        /// How long it is away.
        away: Duration,
    },
    /// The manager crashes, and a pod goes before it starts again.
    CrashWithout {
        /// The pod's number.
        pod: u32,
    },
    /// The manager crashes, and something of what it has on disk is damaged before it starts again.
    CrashWithDamage {
        /// What is done.
        damage: Damage,
        /// To which of what it can be done to, counted round and round.
        which: usize,
        /// A pod that goes meanwhile, by its number.
        without: Option<u32>,
    },
    /// The manager crashes at the so-manieth of what it does at a place, before or after it took effect.
    CrashAt {
        /// What is counted.
        place: Place,
        /// Counted from here.
        number: u32,
        /// Whether the last of them has taken effect. The manager hears of none.
        after: bool,
    },
    /// The driver dies; calls in flight break off.
    KillDriver,
    /// The driver is started again, and registers.
    StartDriver,
    /// The controllers crash, and start again.
    CrashController,
    /// The controllers crash at the so-manieth of their calls or requests, before or after it took effect, and start
    /// again.
    CrashControllerAt {
        /// A call to the driver or a request to the API.
        place: Place,
        /// Counted from here.
        number: u32,
        /// Whether the last of them has taken effect. The controllers hear of none.
        after: bool,
    },
    /// A user asks for a volume, unless the claim exists.
    AddClaim {
        /// Its place in [`Scenario::volumes`].
        volume: usize,
        /// What it is a copy of, if that exists.
        from: Option<Origin>,
        /// The attributes that it is made with.
        class: Option<Attributes>,
    },
    /// A user deletes a claim.
    DeleteClaim {
        /// Its place in [`Scenario::volumes`].
        volume: usize,
    },
    /// A user deletes the object of the volume that a claim is bound to.
    DeleteVolume {
        /// The claim's place in [`Scenario::volumes`].
        volume: usize,
    },
    /// A user asks for a snapshot of a claim.
    AddSnapshot {
        /// Its number.
        snapshot: u32,
        /// The claim's place in [`Scenario::volumes`].
        volume: usize,
    },
    /// A user deletes a snapshot.
    DeleteSnapshot {
        /// Its number.
        snapshot: u32,
    },
    /// A user asks for other attributes of a volume.
    Modify {
        /// Its place in [`Scenario::volumes`].
        volume: usize,
        /// The class of attributes.
        class: Attributes,
    },
    /// A new pod that uses these volumes is bound to the other node.
    AddElsewhere {
        /// Its number.
        pod: u32,
        /// The volumes, by their place in [`Scenario::volumes`].
        volumes: Vec<usize>,
    },
    /// A pod of the other node is gone.
    RemoveElsewhere {
        /// Its number.
        pod: u32,
    },
    /// The node is lost, and its pods with it, for longer than the controller waits before it detaches by force.
    /// Then it comes back, with the mounts that its kernel still has.
    LoseNode {
        /// How long it is away.
        away: Duration,
    },
    /// The controllers have grown a volume, and leave the rest to the node.
    Grow {
        /// Its place in [`Scenario::volumes`].
        volume: usize,
    },
    /// The API stops answering.
    ApiAway,
    /// The API answers again.
    ApiBack,
    /// Time passes.
    Pass(Duration),
}

/// What a new volume is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The volume of a claim, by its place in [`Scenario::volumes`].
    Volume(usize),
    /// A snapshot, by its number.
    Snapshot(u32),
}

/// A class of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attributes {
    Gold,
    Silver,
}

/// What the manager does, where it can crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A step of the kernel.
    Kernel,
    /// A call to the driver.
    Call,
    /// A request to the API.
    Request,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "step",
            Self::Call => "call",
            Self::Request => "request",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddPod { pod, volumes } => write!(f, "add pod {pod} with volumes {volumes:?}"),
            Self::Sync { pod } => write!(f, "sync pod {pod}"),
            Self::Terminate { pod } => write!(f, "terminate pod {pod}"),
            Self::Remove { pod } => write!(f, "remove pod {pod}"),
            Self::Crash { away } => write!(f, "crash the manager, away for {away:?}"),
            Self::CrashWithout { pod } => write!(f, "crash the manager, remove pod {pod} meanwhile"),
            Self::CrashWithDamage { damage, which, without } => {
                write!(f, "crash the manager, {damage:?} number {which} meanwhile")?;
                without.map_or(Ok(()), |pod| write!(f, ", and remove pod {pod}"))
            }
            Self::CrashAt { place, number, after } => {
                write!(f, "crash the manager {} {place} {number}", if *after { "after" } else { "before" })
            }
            Self::KillDriver => f.write_str("kill the driver"),
            Self::StartDriver => f.write_str("start the driver"),
            Self::CrashController => f.write_str("crash the controllers"),
            Self::CrashControllerAt { place, number, after } => {
                write!(
                    f,
                    "crash the controllers {} {place} {number}",
                    if *after { "after" } else { "before" }
                )
            }
            Self::AddClaim { volume, from, class } => {
                write!(f, "add claim {volume}")?;
                class.map_or(Ok(()), |class| write!(f, " of class {class:?}"))?;
                match from {
                    Some(Origin::Volume(source)) => write!(f, " as a copy of claim {source}"),
                    Some(Origin::Snapshot(source)) => write!(f, " from snapshot {source}"),
                    None => Ok(()),
                }
            }
            Self::DeleteVolume { volume } => write!(f, "delete the volume of claim {volume}"),
            Self::DeleteClaim { volume } => write!(f, "delete claim {volume}"),
            Self::AddSnapshot { snapshot, volume } => write!(f, "add snapshot {snapshot} of claim {volume}"),
            Self::DeleteSnapshot { snapshot } => write!(f, "delete snapshot {snapshot}"),
            Self::Modify { volume, class } => write!(f, "change claim {volume} to class {class:?}"),
            Self::AddElsewhere { pod, volumes } => {
                write!(f, "add pod {pod} with volumes {volumes:?} to the other node")
            }
            Self::RemoveElsewhere { pod } => write!(f, "remove pod {pod} from the other node"),
            Self::LoseNode { away } => write!(f, "lose the node, away for {away:?}"),
            Self::Grow { volume } => write!(f, "grow volume {volume}"),
            Self::ApiAway => f.write_str("take the API away"),
            Self::ApiBack => f.write_str("bring the API back"),
            Self::Pass(time) => write!(f, "let {time:?} pass"),
        }
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut capabilities = Vec::new();
        if random.u32(..10) < 8 {
            capabilities.push(Capability::StageUnstageVolume);
        }
        if random.bool() {
            capabilities.push(Capability::SingleNodeMultiWriter);
        }
        let mut scenario = Self {
            seed,
            volumes: (0..random.usize(1..=4)).map(|_| random.u32(..3) == 0).collect(),
            capabilities,
            lean: random.bool(),
            // A third of all seeds has a sound kernel, a third a sound driver: one fault is easier to read.
            kernel_faults: if random.u32(..3) == 0 { 0 } else { random.u32(1..60) },
            driver_faults: if random.u32(..3) == 0 { 0 } else { random.u32(1..400) },
            api_hangs: random.bool(),
            api_delay: match random.u32(..4) {
                0 => Duration::from_millis(random.u64(1..20_000)),
                1 => Duration::from_millis(random.u64(1..500)),
                _ => Duration::ZERO,
            },
            republishes: random.u32(..3) == 0,
            named_twice: random.u32(..4) == 0,
            attachable: random.bool(),
            controlled: false,
            secrets: random.u32(..3) == 0,
            alone: random.u32(..4) == 0,
            grouped: random.u32(..3) == 0,
            scratch: random.u32(..3) == 0,
            unused: random.u32(..3) == 0,
            ephemeral: random.u32(..3) == 0,
            inline: random.u32(..3) == 0,
            tells_pods: random.u32(..3) == 0,
            tokens: match random.u32(..8) {
                0 => Some(Tokens::InContext),
                1 => Some(Tokens::InSecrets),
                _ => None,
            },
            forbidden: random.u32(..4) == 0,
            grows: random.u32(..3) == 0,
            records_growth: random.bool(),
            vanish: random.u32(..3) == 0,
            neighbour: false,
            one_node: false,
            damage: false,
            provisioned: false,
            api_faults: 0,
        };
        scenario.controlled = scenario.attachable && random.bool();
        scenario.neighbour = scenario.controlled && random.u32(..3) > 0;
        scenario.one_node = scenario.alone || scenario.neighbour && random.bool();
        scenario.damage = random.u32(..3) == 0;
        // Tokens that do not last are of little use to a driver that is not given new ones.
        scenario.republishes |= scenario.tokens.is_some();
        scenario.provision();
        scenario.lose_answers();
        if scenario.grows {
            scenario.capabilities.push(Capability::ExpandVolume);
        }
        scenario
    }

    /// Has controllers make the volumes, in every third scenario.
    fn provision(&mut self) {
        let mut random = Rng::with_seed(self.seed ^ 0xc1a1);
        if random.u32(..3) > 0 {
            return;
        }
        (self.provisioned, self.attachable, self.controlled) = (true, true, true);
        // Their volumes are written down, and bound to claims that no user has written.
        (self.forbidden, self.damage) = (false, false);
        self.neighbour = random.u32(..3) > 0;
        self.one_node = self.alone || self.neighbour && random.bool();
    }

    /// Loses answers to controllers, in two of three scenarios that have some.
    fn lose_answers(&mut self) {
        let mut random = Rng::with_seed(self.seed ^ 0xa95);
        if self.controlled && random.u32(..3) > 0 {
            self.api_faults = random.u32(1..100);
        }
    }

    /// A script of a number of steps for this scenario.
    pub fn script(&self, steps: usize) -> Vec<Step> {
        Writer::new(self).write(steps)
    }
}

/// Keeps the steps of a script sensible: only pods that exist are synced and removed.
struct Writer {
    random: Rng,
    volumes: usize,
    /// Whether a volume is for one pod at a time.
    alone: bool,
    /// Whether volumes are grown.
    grows: bool,
    /// Whether pods go while the manager is away.
    vanish: bool,
    /// Whether what the manager has on disk is damaged meanwhile.
    damage: bool,
    /// Whether there is a controller.
    controlled: bool,
    /// Whether there is a second node.
    neighbour: bool,
    /// Whether users write claims.
    provisioned: bool,
    /// Who is there, with what.
    alive: Vec<(u32, Vec<usize>)>,
    /// Who is on the other node.
    elsewhere: Vec<u32>,
    next_pod: u32,
    next_snapshot: u32,
    driver_up: bool,
    api_up: bool,
}

impl Writer {
    fn new(scenario: &Scenario) -> Self {
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

    fn write(mut self, steps: usize) -> Vec<Step> {
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
            54..56 if self.vanish && !self.alive.is_empty() => Step::CrashWithout { pod: self.leaves() },
            54..58 if self.damage => self.crash_with_damage(),
            54..58 => Step::Crash { away: Duration::from_millis(self.random.u64(..5_000)) },
            58..64 => self.crash(),
            64..68 => self.toggle_driver(),
            68..71 => self.toggle_api(),
            71..80 if self.grows => Step::Grow { volume: self.random.usize(..self.volumes) },
            80..82 if self.controlled => Step::CrashController,
            // What controllers do takes some of their requests, of up to a second each.
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

    /// Something on the other node, or the end of this one.
    fn elsewhere(&mut self) -> Step {
        match self.random.u32(..6) {
            0 => {
                self.alive.clear();
                Step::LoseNode { away: Duration::from_secs(self.random.u64(370..600)) }
            }
            1 | 2 if !self.elsewhere.is_empty() => {
                let place = self.random.usize(..self.elsewhere.len());
                Step::RemoveElsewhere { pod: self.elsewhere.remove(place) }
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

    /// Something that a user does with claims and snapshots, or a crash of the controllers that serve them.
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
                let (place, most) = if self.random.bool() { (Place::Call, 8) } else { (Place::Request, 40) };
                Step::CrashControllerAt { place, number: self.random.u32(1..most), after: self.random.bool() }
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
        Step::Remove { pod: self.leaves() }
    }

    fn crash(&mut self) -> Step {
        let (place, most) = match self.random.u32(..3) {
            0 => (Place::Kernel, 60),
            1 => (Place::Call, 12),
            _ => (Place::Request, 12),
        };
        Step::CrashAt { place, number: self.random.u32(1..most), after: self.random.bool() }
    }

    fn crash_with_damage(&mut self) -> Step {
        let damage = Damage::ALL[self.random.usize(..Damage::ALL.len())];
        let which = self.random.usize(..100);
        let goes = !self.alive.is_empty() && self.random.bool();
        Step::CrashWithDamage { damage, which, without: goes.then(|| self.leaves()) }
    }

    /// One of those who are there, and are not from now on.
    fn leaves(&mut self) -> u32 {
        let place = self.random.usize(..self.alive.len());
        self.alive.remove(place).0
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
