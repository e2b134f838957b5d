//! The world of a simulation before its first step, from a seed.

use std::time::Duration;

use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use fastrand::Rng;

use super::writer::Writer;
use super::{Step, groups};

/// The world before the first step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The seed of all later decisions, faults included.
    pub seed: u64,
    /// For each volume, whether it is a device.
    pub volumes: Vec<bool>,
    /// The capabilities that the driver's node service reports.
    pub capabilities: Vec<Capability>,
    /// Whether the manager keeps its connection to the driver.
    pub lean: bool,
    /// The number in a thousand acts of the kernel that fail or stall.
    pub kernel_faults: u32,
    /// The number in a thousand calls to the driver that fail or stall.
    pub driver_faults: u32,
    /// Whether an API that is down accepts requests without answering them.
    pub api_hangs: bool,
    /// The longest delay of a request to the API and of its answer, each; zero for a fast API.
    pub api_delay: Duration,
    /// Whether the driver has requiresRepublish.
    pub republishes: bool,
    /// Whether pods name their first volume twice.
    pub named_twice: bool,
    /// Whether volumes must be attached.
    pub attachable: bool,
    /// Whether a controller attaches and detaches them; otherwise they are attached from the beginning.
    pub controlled: bool,
    /// Whether volumes have a secret, each for one of its calls.
    pub secrets: bool,
    /// Whether each volume is for one pod at a time, which mounts it with its SELinux label.
    pub alone: bool,
    /// Whether pods have an fsGroup.
    pub grouped: bool,
    /// Whether pods have an emptyDir as well.
    pub scratch: bool,
    /// Whether pods name a volume that none of their containers uses.
    pub unused: bool,
    /// Whether some pods have a generic ephemeral volume.
    pub ephemeral: bool,
    /// Whether some pods have an inline volume.
    pub inline: bool,
    /// Whether the driver has podInfoOnMount.
    pub tells_pods: bool,
    /// Whether and where the driver gets tokens of the pod's account, which expire.
    pub tokens: Option<Tokens>,
    /// Whether some pods name a volume that they may not use. They never get all of their volumes.
    pub forbidden: bool,
    /// Whether volumes are expanded.
    pub grows: bool,
    /// Whether claims record the progress of an expansion.
    pub records_growth: bool,
    /// Whether pods are deleted while the manager is down.
    pub vanish: bool,
    /// Whether a second node has pods with the same volumes. Then the first node may be lost.
    pub neighbour: bool,
    /// Whether volumes are for one node at a time.
    pub one_node: bool,
    /// Whether the manager's files are damaged while it is down.
    pub damage: bool,
    /// Whether controllers make the volumes for claims that a user writes and deletes; otherwise they exist from the
    /// beginning.
    pub provisioned: bool,
    /// Whether a user takes group snapshots of claims.
    pub groups: bool,
    /// The number in a thousand requests of the controllers that get no answer, whether they take effect or not.
    pub api_faults: u32,
}

/// The field of a request with the tokens that a driver asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// In the context of the volume.
    InContext,
    /// Among the secrets.
    InSecrets,
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
            // A third of all seeds has a sound kernel, a third a sound driver: a trace with one kind of fault is easier to read.
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
            groups: false,
            api_faults: 0,
        };
        scenario.controlled = scenario.attachable && random.bool();
        scenario.neighbour = scenario.controlled && random.u32(..3) > 0;
        scenario.one_node = scenario.alone || scenario.neighbour && random.bool();
        scenario.damage = random.u32(..3) == 0;
        // Tokens expire, so a driver that uses them needs new ones.
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
        // Forbidden and damaged volumes need objects that are written by hand.
        (self.forbidden, self.damage) = (false, false);
        self.neighbour = random.u32(..3) > 0;
        self.one_node = self.alone || self.neighbour && random.bool();
        self.groups = self.volumes.len() > 1 && Rng::with_seed(self.seed ^ 0x6709).u32(..3) == 0;
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
        let steps = Writer::new(self).write(steps);
        match self.groups {
            true => groups::among(self, steps),
            false => steps,
        }
    }
}
