//! The steps of a script.

use std::fmt;
use std::time::Duration;

use super::Damage;

/// A change of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A new pod that uses these volumes is bound to the node.
    AddPod {
        pod: u32,
        /// The volumes, by their indices in [`Scenario::volumes`](super::Scenario::volumes).
        volumes: Vec<usize>,
    },
    /// A pod is synced: its owner waits for its volumes.
    Sync {
        pod: u32,
    },
    /// A pod's containers have to end.
    Terminate {
        pod: u32,
    },
    /// A pod's containers are gone, and its object with them.
    Remove {
        pod: u32,
    },
    /// The manager crashes at once, and starts again after a while.
    Crash {
        /// The time until it starts again.
        away: Duration,
    },
    /// The manager crashes, and a pod is removed before it starts again.
    CrashWithout {
        pod: u32,
    },
    /// The manager crashes, and one of its files is damaged before it starts again.
    CrashWithDamage {
        damage: Damage,
        /// The index of the file, modulo the number of files that can be damaged so.
        which: usize,
        /// The number of a pod that is removed meanwhile.
        without: Option<u32>,
    },
    /// The manager crashes at its `number`-th act of a kind from now on, before or after that takes effect.
    CrashAt {
        point: CrashPoint,
        number: u32,
        /// Whether the act takes effect. The manager gets no answer in either case.
        after: bool,
    },
    /// The driver dies; calls in flight break off.
    KillDriver,
    /// The driver is started again, and registers.
    StartDriver,
    /// The controllers crash, and start again.
    CrashController,
    /// The controllers crash at their `number`-th call or request from now on, before or after that takes effect, and start
    /// again.
    CrashControllerAt {
        /// A call to the driver or a request to the API.
        point: CrashPoint,
        number: u32,
        /// Whether it takes effect. The controllers get no answer in either case.
        after: bool,
    },
    /// A user creates a claim, unless it exists.
    AddClaim {
        /// Its index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
        /// The source of the copy, if that exists.
        from: Option<Origin>,
        /// The class of attributes that the volume is created with.
        class: Option<Attributes>,
    },
    /// A user deletes a claim.
    DeleteClaim {
        /// Its index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
    },
    /// A user deletes the object of the volume that a claim is bound to.
    DeleteVolume {
        /// The claim's index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
    },
    /// A user asks for a snapshot of a claim.
    AddSnapshot {
        snapshot: u32,
        /// The claim's index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
    },
    /// A user deletes a snapshot.
    DeleteSnapshot {
        snapshot: u32,
    },
    /// A user asks for a group snapshot of those of these claims that exist.
    AddGroup {
        /// Its number.
        group: u32,
        /// The claims' indices in [`Scenario::volumes`](super::Scenario::volumes).
        volumes: Vec<usize>,
    },
    /// A user deletes a group snapshot.
    DeleteGroup {
        /// Its number.
        group: u32,
    },
    /// A user deletes the snapshot of one claim of a group alone.
    DeleteMember {
        /// The group's number.
        group: u32,
        /// The claim's index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
    },
    /// A user asks for other attributes of a volume.
    Modify {
        /// Its index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
        class: Attributes,
    },
    /// A new pod that uses these volumes is bound to the other node.
    AddElsewhere {
        pod: u32,
        /// The volumes, by their indices in [`Scenario::volumes`](super::Scenario::volumes).
        volumes: Vec<usize>,
    },
    /// A pod of the other node is gone.
    RemoveElsewhere {
        pod: u32,
    },
    /// The node is lost, and its pods with it, for longer than the controller waits before it detaches by force.
    /// Then it comes back, with the mounts that its kernel still has.
    LoseNode {
        /// The duration of its absence.
        away: Duration,
    },
    /// The controllers have grown a volume, and leave the rest to the node.
    Grow {
        /// Its index in [`Scenario::volumes`](super::Scenario::volumes).
        volume: usize,
    },
    /// The API stops answering.
    ApiAway,
    /// The API answers again.
    ApiBack,
    Pass(Duration),
}

/// The source of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The volume of a claim, by its index in [`Scenario::volumes`](super::Scenario::volumes).
    Volume(usize),
    /// A snapshot, by its number.
    Snapshot(u32),
    /// The snapshot of a claim that is part of a group, by the group's number and the claim's index.
    Member(u32, usize),
}

/// A class of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attributes {
    Gold,
    Silver,
}

/// The kinds of acts at which the manager can crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// An act of the kernel, such as a mount.
    Kernel,
    /// A call to the driver.
    Call,
    /// A request to the API.
    Request,
}

impl fmt::Display for CrashPoint {
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
            Self::CrashAt { point, number, after } => {
                write!(f, "crash the manager {} {point} {number}", if *after { "after" } else { "before" })
            }
            Self::KillDriver => f.write_str("kill the driver"),
            Self::StartDriver => f.write_str("start the driver"),
            Self::CrashController => f.write_str("crash the controllers"),
            Self::CrashControllerAt { point, number, after } => {
                write!(
                    f,
                    "crash the controllers {} {point} {number}",
                    if *after { "after" } else { "before" }
                )
            }
            Self::AddClaim { volume, from, class } => {
                write!(f, "add claim {volume}")?;
                class.map_or(Ok(()), |class| write!(f, " of class {class:?}"))?;
                match from {
                    Some(Origin::Volume(source)) => write!(f, " as a copy of claim {source}"),
                    Some(Origin::Snapshot(source)) => write!(f, " from snapshot {source}"),
                    Some(Origin::Member(group, claim)) => {
                        write!(f, " from the snapshot of claim {claim} in group {group}")
                    }
                    None => Ok(()),
                }
            }
            Self::DeleteVolume { volume } => write!(f, "delete the volume of claim {volume}"),
            Self::DeleteClaim { volume } => write!(f, "delete claim {volume}"),
            Self::AddSnapshot { snapshot, volume } => write!(f, "add snapshot {snapshot} of claim {volume}"),
            Self::DeleteSnapshot { snapshot } => write!(f, "delete snapshot {snapshot}"),
            Self::AddGroup { group, volumes } => {
                write!(f, "add group snapshot {group} of claims {volumes:?}")
            }
            Self::DeleteGroup { group } => write!(f, "delete group snapshot {group}"),
            Self::DeleteMember { group, volume } => {
                write!(f, "delete the snapshot of claim {volume} in group {group}")
            }
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
