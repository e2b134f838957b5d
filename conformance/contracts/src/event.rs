//! The events of a trace: one line each, in one total order.
//!
//! The journal writes these lines from a real kernel, the simulation from a simulated one, and a recorder
//! from a node and a driver outside this project. The rules of this crate read them and nothing else, so a rule holds
//! wherever a trace comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod disturbance;
mod driver_answer;
mod unreadable;
mod words;

pub use disturbance::Disturbance;
pub use driver_answer::DriverAnswer;
pub use unreadable::Unreadable;
pub use words::{
    Awaited, Client, Edge, EffectKind, Lifecycle, Meddling, ObjectKind, OperationName, PodPhase, Recovery,
    Role, UnknownWord, Verb, World,
};

/// One line of `trace.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// Position in the order of the trace, from 1, without gaps.
    pub seq: u64,
    /// Milliseconds since the trace began. For people: no rule depends on it but the bounded ones.
    pub t_ms: f64,
    #[serde(flatten)]
    pub event: Event,
}

/// The kinds of events. The names of the variants, in snake case, are the `ev` of a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum Event {
    /// A CSI call reached the socket the manager speaks to.
    RpcStart(RpcStart),
    /// The answer of a call left the socket.
    RpcEnd(RpcEnd),
    /// A mount appeared at a path.
    MountAdd(Mount),
    /// A mount was taken away.
    MountDel(MountDel),
    /// Options or propagation of a mount changed.
    MountChg(Mount),
    /// The manager announced an effect; the line has whether the kernel shows it.
    Effect(Effect),
    /// The manager's books changed: its actual or its desired state of the world.
    State(StateChange),
    /// An operation was started, or has ended.
    Operation(OperationEdge),
    /// An object of the API was created, changed or deleted, and by whom.
    Api(ApiChange),
    /// A Kubernetes event was emitted about an object.
    Event(Emitted),
    /// A wait for a pod's volumes returned.
    Wait(WaitReturned),
    /// The manager has come to know something that it starts without.
    Recovered(Recovered),
    /// A process of the run started or ended.
    Process(ProcessEdge),
    /// A call that the case itself makes to the driver, past the proxy.
    DirectCall(DirectCall),
    /// The kernel could not report all mounts: the order cannot be vouched for any more.
    MountsLost(MountsLost),
    /// The harness looked at what had happened: what the node did before, and has not announced while none of its
    /// operations is under way, it never will.
    Looked,
    /// Another process changed a directory, record or link of the node between two calls; the node did not announce it.
    Meddled(Meddled),
    /// During a call a driver changed a path of the node, or left the call's own path as it was.
    Touched(Touched),
    /// A step of the case, the scenario or the player: for people, no rule reads it.
    Case(Step),
    /// A pod was given to the node or taken from it, or its containers changed.
    Pod(PodChange),
    /// The world was made worse, or better again, in a way that rules take into account.
    Disturbed(Disturbance),
}

impl Event {
    /// The `ev` of all of them.
    pub(crate) const WORDS: &[&'static str] = &[
        "rpc_start",
        "rpc_end",
        "mount_add",
        "mount_del",
        "mount_chg",
        "effect",
        "state",
        "operation",
        "api",
        "event",
        "wait",
        "recovered",
        "process",
        "direct_call",
        "mounts_lost",
        "looked",
        "meddled",
        "touched",
        "case",
        "pod",
        "disturbed",
    ];
}

/// The start of a CSI call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcStart {
    /// Pairs the start with its end.
    pub id: u64,
    /// The bare method name, such as `NodeStageVolume`.
    pub method: String,
    /// The request as JSON in the protobuf mapping (camelCase); secrets are `***`.
    pub req: Value,
    /// The caller's deadline in seconds, if it sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<f64>,
}

/// The end of a CSI call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcEnd {
    /// The `id` of the start.
    pub id: u64,
    /// The bare method name.
    pub method: String,
    /// The gRPC code in Go's spelling, such as `OK` or `DeadlineExceeded`.
    pub code: String,
    /// The driver's message, if the code is not `OK`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The duration of the call.
    pub dur_ms: f64,
    /// The answer as JSON; null unless the code is `OK`.
    #[serde(default)]
    pub resp: Value,
    /// The fault that the proxy injected, if one was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<String>,
    /// Whether the caller went away before the driver had answered, which may go on with it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub abandoned: bool,
    /// Why no client could read the answer; the code is then not the driver's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<Unreadable>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The codes with which a driver says that it cannot do a call now.
pub const NOT_NOW: [&str; 2] = ["Unavailable", "DeadlineExceeded"];

impl RpcEnd {
    /// Whether the driver itself put the call off, so that its caller makes it again.
    pub fn is_put_off(&self) -> bool {
        let code = self.code.as_str();
        (NOT_NOW.contains(&code) || code == "Aborted") && self.injected.is_none() && self.unreadable.is_none()
    }

    /// Whether the driver gave this answer, and not the proxy instead: a rule that only delays or repeats a call leaves
    /// the answer to the driver. An unreadable answer counts as none.
    pub fn is_from_the_driver(&self) -> bool {
        if self.unreadable.is_some() {
            return false;
        }
        let Some(injected) = &self.injected else { return true };
        let has = |word| injected.split(' ').any(|one| one == word);
        has("code=") && has("hang=false")
    }
}

/// The process behind a change, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The process that holds the volume manager.
    Node,
    /// The driver, or a process it started.
    Driver,
    /// The harness, on behalf of a case.
    Harness,
    /// The process is not known.
    Unknown,
}

/// A mount, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    /// The mount point.
    pub target: String,
    /// The directory of its file system that it shows.
    pub root: String,
    /// The type of its file system.
    pub fstype: String,
    /// The source that the mount table names.
    pub source: String,
    /// Options of this mount, as mountinfo shows them.
    pub opts: String,
    /// Options of its file system.
    #[serde(rename = "super")]
    pub super_opts: String,
    /// Device of the file system, `major:minor`.
    pub dev: String,
    /// For a device node bound over a file, the device it reaches, `major:minor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<String>,
    /// Propagation, as mountinfo's optional fields show it (`shared:1 master:2`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub propagation: String,
    /// The kernel's unique id of this mount; 0 where it has none.
    pub id: u64,
    /// The process that did it.
    pub by: Actor,
    /// The witness: `fanotify`, `poll` or `simulation`.
    pub seen_by: String,
    /// Whether the witness named no process, so that `by` is the likeliest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unnamed: bool,
}

/// A mount that is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountDel {
    /// The mount point.
    pub target: String,
    /// The kernel's id of the mount, which no other mount has before the machine restarts.
    pub id: u64,
    /// The process that did it.
    pub by: Actor,
    /// The witness, as in [`Mount`].
    pub seen_by: String,
    /// Whether the witness named no process.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unnamed: bool,
}

/// Something the manager announced after it succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub effect: EffectKind,
    /// The path it was done to.
    pub path: String,
    /// The other end of the effect: a bind's source, a link's target, a lock's loop device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Everything else that was announced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
    /// Whether the kernel showed it when the journal looked.
    pub confirmed: bool,
}

/// A change of an entry of the manager's books. Empty `from`: it is new; empty `to`: it is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateChange {
    pub world: World,
    /// `volume <unique name>` or `pod <uid> <unique name>`.
    pub key: String,
    /// The state before, in the words of the recordings (`VolumeMounted`, `DeviceGloballyMounted …`).
    pub from: String,
    /// The state after.
    pub to: String,
}

/// The start or the end of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationEdge {
    pub name: OperationName,
    /// The volume of its key; empty for none.
    pub volume: String,
    /// The pod of its key; empty for every pod.
    pub pod: String,
    pub edge: Edge,
    /// Why it failed, when it ended and did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A change of an API object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApiChange {
    pub verb: Verb,
    pub kind: ObjectKind,
    /// `namespace/name`, or `name` for what has no namespace.
    pub object: String,
    pub by: Client,
    /// The fields that matter to a rule, such as `status.volumesInUse`.
    #[serde(default)]
    pub body: Value,
}

/// A Kubernetes event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Emitted {
    /// `pod/a`, `pv/pv-v1`.
    pub obj: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kubelet's reason, such as `FailedMount`.
    pub reason: String,
    pub message: String,
    #[serde(default = "node", skip_serializing_if = "is_node")]
    pub by: Client,
}

fn node() -> Client {
    Client::Node
}

fn is_node(client: &Client) -> bool {
    *client == Client::Node
}

/// A wait for the volumes of a pod came back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitReturned {
    pub what: Awaited,
    pub pod: String,
    /// The error's text; empty for success.
    pub err: String,
}

/// A process of the run started or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessEdge {
    pub who: Role,
    pub edge: Lifecycle,
    /// Exit status or signal, where it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The directory that a node works in, where it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Whether the driver's processes cannot be seen from where the node started.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hides_driver: bool,
}

/// The start or the end of a call of the case's own, as far as it is a reason for the driver to change mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectCall {
    pub id: u64,
    pub edge: Edge,
    /// The volume's handle.
    pub volume: String,
    /// The paths it names, the one to be changed first.
    pub paths: Vec<String>,
    /// The driver's answer, at the end of a call that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<DirectAnswer>,
}

/// See [`DirectCall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectAnswer {
    /// The bare method name.
    pub method: String,
    /// The gRPC code in Go's spelling.
    pub code: String,
    /// The driver's message, if the code is not `OK`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the status has details, which CSI forbids.
    #[serde(default, skip_serializing_if = "is_false")]
    pub details: bool,
    /// The answer as JSON; null unless the code is `OK`.
    #[serde(default)]
    pub resp: Value,
}

/// See [`Event::MountsLost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountsLost {
    pub why: String,
}

/// See [`Event::Meddled`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meddled {
    pub how: Meddling,
    pub path: String,
    /// The only process that can have done it.
    pub by: Actor,
}

/// A stray or a phantom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Irregular {
    /// The mount that was seen or announced, in the words of the story.
    pub what: String,
    /// The process that did it.
    pub by: Actor,
}

/// A path of the node that a call created, removed or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Touched {
    /// The bare method name.
    pub method: String,
    /// The call's `id`.
    pub id: u64,
    pub path: String,
    pub how: Touch,
    /// Whether the path is the one that the call names, and not one beside it.
    pub named: bool,
}

/// The change that [`Touched`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Touch {
    /// The file or directory was removed.
    Removed,
    /// Another file or directory has the path.
    Replaced,
    /// A symbolic link has the path.
    Linked,
    /// The file has another content.
    Written,
    /// The driver has made it, and it is still there after it was undone.
    Kept,
    /// A raw device was published here, and nothing that lies here is a device or leads to one.
    NoDevice,
}

/// Something that a manager knows from now on, until it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    pub what: Recovery,
}

/// A step of a case or a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The step's name.
    #[serde(rename = "do")]
    pub action: String,
    /// The object of the step.
    #[serde(default)]
    pub on: String,
    /// The file and line of the step in the case's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodChange {
    /// The UID or the name of the pod.
    pub pod: String,
    pub to: PodPhase,
}
