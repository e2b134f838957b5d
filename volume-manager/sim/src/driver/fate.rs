//! Faults of calls, as real drivers have them.

use std::time::Duration;

use fastrand::Rng;
use tonic::Code;

/// Codes that leave the outcome open: the driver may answer them after its work is done.
const UNKNOWN: &[Code] =
    &[Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted, Code::Aborted];

/// Codes that say that nothing was done. Some drivers answer them after their work is done.
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

/// The fate of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Work,
    /// It is delayed, and given up if its caller goes.
    Stall(Duration),
    /// It is delayed, perhaps beyond the caller's deadline, and done in any case.
    Late(Duration),
    FailBefore(Code),
    FailAfter(Code),
    HangBefore,
    HangAfter,
}

/// Decides the fate of calls.
#[derive(Debug)]
pub(super) struct Fates {
    random: Rng,
    per_mille: u32,
}

impl Fates {
    pub(super) fn new(seed: u64, per_mille: u32) -> Self {
        Self { random: Rng::with_seed(seed ^ 0xd00d), per_mille }
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.per_mille = 0;
    }

    /// The fate of the next call.
    pub(super) fn next(&mut self, method: &str) -> Fate {
        let random = &mut self.random;
        // One scenario in many changes attributes, once or twice: what follows a failure would hardly ever be met.
        let per_mille = if method == "ControllerModifyVolume" { 8 * self.per_mille } else { self.per_mille };
        if per_mille == 0 || random.u32(..1000) >= per_mille {
            return Fate::Work;
        }
        let undo = method.contains("Un");
        let is_node_setup = matches!(method, "NodeStageVolume" | "NodePublishVolume");
        let pick = |random: &mut Rng, codes: &[Code]| codes[random.usize(..codes.len())];
        match random.u32(..14) {
            0..4 => Fate::FailBefore(pick(random, UNKNOWN)),
            4..6 => Fate::FailBefore(pick(random, FINAL)),
            6..8 => Fate::FailAfter(pick(random, UNKNOWN)),
            // A node call that had its effect and denies it: the effect is visible, and is undone.
            8 if undo || is_node_setup => Fate::FailAfter(pick(random, FINAL)),
            8 => Fate::FailBefore(pick(random, FINAL)),
            9 => Fate::HangBefore,
            10 => Fate::HangAfter,
            11..13 => Fate::Late(Duration::from_millis(random.u64(1_000..200_000))),
            _ => Fate::Stall(Duration::from_millis(random.u64(1..30_000))),
        }
    }
}
