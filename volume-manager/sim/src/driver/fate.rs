//! What goes wrong with a call, as it goes wrong with real drivers.

use std::time::Duration;

use fastrand::Rng;
use tonic::Code;

/// Codes after which nobody knows what happened: a driver may answer them after its work is done.
const UNKNOWN: &[Code] =
    &[Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted, Code::Aborted];

/// Codes that say that nothing was done. Some drivers answer them after they have done it.
const FINAL: &[Code] = &[
    Code::Unknown,
    Code::InvalidArgument,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::FailedPrecondition,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Work,
    /// It takes a while, and is given up with its caller.
    Stall(Duration),
    /// It takes a while, perhaps longer than anybody waits, and is done whoever has gone meanwhile.
    Late(Duration),
    FailBefore(Code),
    FailAfter(Code),
    HangBefore,
    HangAfter,
}

/// Decides about calls.
#[derive(Debug)]
pub(super) struct Fates {
    random: Rng,
    per_mille: u32,
}

impl Fates {
    pub(super) fn new(seed: u64, per_mille: u32) -> Self {
        Self { random: Rng::with_seed(seed ^ 0xd00d), per_mille }
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.per_mille = 0;
    }

    /// What happens to the next call.
    pub(super) fn next(&mut self, method: &str) -> Fate {
        let random = &mut self.random;
        if self.per_mille == 0 || random.u32(..1000) >= self.per_mille {
            return Fate::Work;
        }
        let undo = method.contains("Un");
        let is_node_setup = matches!(method, "NodeStageVolume" | "NodePublishVolume");
        let pick = |random: &mut Rng, codes: &[Code]| codes[random.usize(..codes.len())];
        match random.u32(..14) {
            0..4 => Fate::FailBefore(pick(random, UNKNOWN)),
            4..6 => Fate::FailBefore(pick(random, FINAL)),
            6..8 => Fate::FailAfter(pick(random, UNKNOWN)),
            // A node call that had its effect and answers a code that denies it: the effect shows, and is undone.
            8 if undo || is_node_setup => Fate::FailAfter(pick(random, FINAL)),
            8 => Fate::FailBefore(pick(random, FINAL)),
            9 => Fate::HangBefore,
            10 => Fate::HangAfter,
            11..13 => Fate::Late(Duration::from_millis(random.u64(1_000..200_000))),
            _ => Fate::Stall(Duration::from_millis(random.u64(1..30_000))),
        }
    }
}
