//! The first questions to a driver: its name, whether it is ready, its capabilities.
//!
//! All of them are asked even if one gets no answer, so that the report has every missing call.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::group_controller_client::GroupControllerClient;
use csi_proto::v1::identity_client::IdentityClient;
use csi_proto::v1::node_client::NodeClient;
use serde::{Deserialize, Serialize};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::Capabilities;
use crate::proxy::{self, is_unanswered, unreadable, within};

/// An answer to a first question that breaks a promise, or with which the driver cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongAnswer {
    pub method: String,
    /// The promise it breaks, `DRV-…`; none where CSI lets a plugin answer so.
    pub promise: Option<String>,
    /// The fault, without ids and numbers.
    pub cause: String,
    /// The answer in words, with its ids and numbers.
    pub detail: String,
    /// Whether no case can run with such a driver.
    pub is_fatal: bool,
}

impl WrongAnswer {
    /// The wrong answer for one that could not be decoded; `to` names the request.
    pub fn unreadable(method: &str, status: &Status, to: &str) -> Option<Self> {
        let unreadable = unreadable(status)?;
        let (cause, method) = (unreadable.cause().to_owned(), unreadable.of(method));
        let to = if to.is_empty() { String::new() } else { format!("{to}: ") };
        Some(Self {
            method: method.to_owned(),
            promise: Some(READABLE.to_owned()),
            cause,
            detail: shortened(&format!("{to}{}", status.message())),
            is_fatal: false,
        })
    }
}

impl WrongAnswer {
    /// The wrong answer for a call that got none in time by the caller's clock.
    pub fn unanswered(method: &str, status: &Status) -> Option<Self> {
        is_unanswered(status).then(|| Self {
            method: method.to_owned(),
            promise: Some(ANSWERED.to_owned()),
            cause: NOT_ANSWERED.to_owned(),
            detail: shortened(status.message()),
            is_fatal: false,
        })
    }

    /// Whether both report the same fault.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.promise, &self.method, &self.cause) == (&other.promise, &other.method, &other.cause)
    }
}

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.method.is_empty() { String::new() } else { format!("{}: ", self.method) };
        write!(f, "{by}{}", self.cause)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

/// Capabilities, and the wrong answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) capabilities: Capabilities,
    pub(super) wrong: Vec<WrongAnswer>,
}

/// Calls that CSI requires of every plugin, with any capabilities.
const REQUIRED: &str = "DRV-007";

/// How many they are: GetPluginInfo, Probe, GetPluginCapabilities, NodeGetCapabilities.
const REQUIRED_CALLS: usize = 4;

/// The cause for a call without an answer in time.
pub const NOT_ANSWERED: &str = "not answered";

/// Each call is answered.
const ANSWERED: &str = "DRV-093";

/// Answers that a client can read.
const READABLE: &str = "DRV-009";

/// Calls that CSI requires of a plugin that reports their capability.
const REPORTED: &str = "DRV-002";

impl Answers {
    pub(super) async fn ask(
        socket: &Path,
        controller: Option<&Path>,
        limit: Duration,
    ) -> Result<Self, Status> {
        let channel = channel(socket)?;
        let mut answers = Self::default();
        answers.ask_identity(channel.clone(), limit).await;
        if let Some(controller) = controller {
            // The capabilities that sidecars beside the controller see.
            answers.ask_plugin_capabilities(self::channel(controller)?, limit).await;
        }
        if answers.capabilities.controls() || controller.is_some() {
            let channel = controller.map_or(Ok(channel.clone()), self::channel)?;
            answers.ask_controller(channel.clone(), limit).await;
            if answers.capabilities.plugin.contains("GROUP_CONTROLLER_SERVICE") {
                answers.ask_group(channel, limit).await;
            }
        }
        answers.ask_node(channel.clone(), limit).await;
        if answers.serves_nothing() && proxy::serves_csi_0(channel, limit).await {
            answers.wrong = vec![older_version()];
            return Ok(answers);
        }
        let uncoupled = uncoupled(&answers.capabilities);
        for (method, cause) in uncoupled {
            answers.broken(method, "DRV-173", cause, String::new(), false);
        }
        Ok(answers)
    }

    /// Whether each call that CSI requires of every plugin is unimplemented.
    fn serves_nothing(&self) -> bool {
        let missing = self.wrong.iter().filter(|answer| answer.promise.as_deref() == Some(REQUIRED));
        missing.count() == REQUIRED_CALLS
    }

    async fn ask_identity(&mut self, channel: Channel, limit: Duration) {
        let mut client = IdentityClient::new(channel.clone());
        let every_plugin = EVERY_PLUGIN;
        let info = client.get_plugin_info(within(v1::GetPluginInfoRequest {}, limit)).await;
        if let Some(info) = self.answer("GetPluginInfo", &every_plugin, info) {
            if let Some(cause) = wrong_name(&info.name) {
                let is_fatal = !is_usable_in_paths(&info.name);
                self.broken(
                    "GetPluginInfo",
                    "DRV-001",
                    cause,
                    shortened(&format!("{:?}", info.name)),
                    is_fatal,
                );
            }
            self.capabilities.name = info.name;
            self.capabilities.version = info.vendor_version;
        }
        // Readiness was waited for before; here only its absence counts, which no call depends on.
        let probed = client.probe(within(v1::ProbeRequest {}, limit)).await;
        let is_wrong = |status: &Status| {
            status.code() == Code::Unimplemented || unreadable(&proxy::explained(status.clone())).is_some()
        };
        if probed.as_ref().is_err_and(is_wrong) {
            self.answer("Probe", &Requirement { is_fatal: false, ..every_plugin }, probed);
        }
        self.ask_plugin_capabilities(channel, limit).await;
    }

    async fn ask_plugin_capabilities(&mut self, channel: Channel, limit: Duration) {
        let mut client = IdentityClient::new(channel);
        let answer = client.get_plugin_capabilities(within(v1::GetPluginCapabilitiesRequest {}, limit)).await;
        let Some(answer) = self.answer("GetPluginCapabilities", &EVERY_PLUGIN, answer) else { return };
        use v1::plugin_capability::{Type, service, volume_expansion};
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            let name = match capability {
                Type::Service(service) => {
                    service::Type::try_from(service.r#type).map(|kind| kind.as_str_name())
                }
                Type::VolumeExpansion(expansion) => {
                    volume_expansion::Type::try_from(expansion.r#type).map(|kind| kind.as_str_name())
                }
            };
            // Capabilities of a newer specification are not used here.
            self.capabilities.plugin.extend(name.ok().map(str::to_owned));
        }
    }

    async fn ask_controller(&mut self, channel: Channel, limit: Duration) {
        let mut client = ControllerClient::new(channel);
        let request = within(v1::ControllerGetCapabilitiesRequest {}, limit);
        let answer = client.controller_get_capabilities(request).await;
        let of = "CSI requires it of a plugin that reports CONTROLLER_SERVICE";
        let required = Requirement { promise: REPORTED, of, is_fatal: true };
        let Some(answer) = self.answer("ControllerGetCapabilities", &required, answer) else { return };
        use v1::controller_service_capability::{Type, rpc};
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            let Type::Rpc(rpc) = capability;
            let name = rpc::Type::try_from(rpc.r#type).ok().map(|kind| kind.as_str_name().to_owned());
            self.capabilities.controller.extend(name);
        }
    }

    async fn ask_group(&mut self, channel: Channel, limit: Duration) {
        let mut client = GroupControllerClient::new(channel);
        let request = within(v1::GroupControllerGetCapabilitiesRequest {}, limit);
        let answer = client.group_controller_get_capabilities(request).await;
        let of = "CSI requires it of a plugin that reports GROUP_CONTROLLER_SERVICE";
        let required = Requirement { promise: REPORTED, of, is_fatal: false };
        let Some(answer) = self.answer("GroupControllerGetCapabilities", &required, answer) else { return };
        use v1::group_controller_service_capability::{Type, rpc};
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            let Type::Rpc(rpc) = capability;
            let name = rpc::Type::try_from(rpc.r#type).ok().map(|kind| kind.as_str_name().to_owned());
            self.capabilities.group.extend(name);
        }
    }

    async fn ask_node(&mut self, channel: Channel, limit: Duration) {
        let mut client = NodeClient::new(channel);
        let answer = client.node_get_capabilities(within(v1::NodeGetCapabilitiesRequest {}, limit)).await;
        let required =
            Requirement { promise: REQUIRED, of: "CSI requires it of every node plugin", is_fatal: true };
        if let Some(answer) = self.answer("NodeGetCapabilities", &required, answer) {
            use v1::node_service_capability::{Type, rpc};
            for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
                let Type::Rpc(rpc) = capability;
                let name = rpc::Type::try_from(rpc.r#type).ok().map(|kind| kind.as_str_name().to_owned());
                self.capabilities.node.extend(name);
            }
        }
        let info = client.node_get_info(within(v1::NodeGetInfoRequest {}, limit)).await;
        let attaches = self.capabilities.controller_can("PUBLISH_UNPUBLISH_VOLUME");
        let required = match attaches {
            true => Requirement {
                promise: REPORTED,
                of: "CSI requires it of a plugin that reports PUBLISH_UNPUBLISH_VOLUME",
                is_fatal: true,
            },
            false => Requirement {
                promise: "",
                of: "CSI lets it out, but the kubelet registers no driver without it",
                is_fatal: true,
            },
        };
        let Some(info) = self.answer("NodeGetInfo", &required, info) else { return };
        if let Some(cause) = wrong_node_id(&info.node_id) {
            self.broken("NodeGetInfo", "DRV-005", cause, shortened(&format!("{:?}", info.node_id)), true);
        }
        let topology = info.accessible_topology.map(|found| found.segments.into_iter().collect());
        let topology: BTreeMap<String, String> = topology.unwrap_or_default();
        if let Some((key, value)) = topology.iter().find(|(key, value)| is_wrong_segment(key, value)) {
            let cause = "a topology key or value does not have the form that CSI gives it";
            self.broken("NodeGetInfo", "DRV-008", cause, shortened(&format!("{key:?}: {value:?}")), true);
        }
        match (topology.is_empty(), self.capabilities.plugin.contains("VOLUME_ACCESSIBILITY_CONSTRAINTS")) {
            (true, true) => {
                let cause = "no topology, and the plugin reports VOLUME_ACCESSIBILITY_CONSTRAINTS";
                self.broken("NodeGetInfo", "DRV-006", cause, String::new(), false);
            }
            (false, false) => {
                let cause = "a topology, and the plugin does not report VOLUME_ACCESSIBILITY_CONSTRAINTS";
                self.broken("NodeGetInfo", "DRV-174", cause, String::new(), false);
            }
            _ => {}
        }
        self.capabilities.node_id = info.node_id;
        self.capabilities.max_volumes = info.max_volumes_per_node;
        self.capabilities.topology = topology;
    }

    /// The answer; where there is none, that is noted with what requires one.
    fn answer<T>(
        &mut self,
        method: &str,
        required: &Requirement,
        answer: Result<Response<T>, Status>,
    ) -> Option<T> {
        let status = match answer {
            Ok(answer) => return Some(answer.into_inner()),
            Err(status) => proxy::explained(status),
        };
        let found = WrongAnswer::unreadable(method, &status, "");
        if let Some(found) = found.or_else(|| WrongAnswer::unanswered(method, &status)) {
            let is_known = self.wrong.iter().any(|known| known.is_same(&found));
            self.wrong.extend((!is_known).then_some(WrongAnswer { is_fatal: required.is_fatal, ..found }));
            return None;
        }
        let unimplemented = status.code() == Code::Unimplemented;
        let cause = match unimplemented {
            true => format!("not implemented; {}", required.of),
            false => format!("answered {}", proxy::code_name(status.code())),
        };
        // CSI lets a plugin answer with an error, but not leave the call unimplemented.
        let promise = (unimplemented && !required.promise.is_empty()).then(|| required.promise.to_owned());
        let detail = shortened(status.message());
        let is_fatal = required.is_fatal;
        self.wrong.push(WrongAnswer { method: method.to_owned(), promise, cause, detail, is_fatal });
        None
    }

    fn broken(&mut self, method: &str, promise: &str, cause: &str, detail: String, is_fatal: bool) {
        let (method, promise, cause) = (method.to_owned(), Some(promise.to_owned()), cause.to_owned());
        self.wrong.push(WrongAnswer { method, promise, cause, detail, is_fatal });
    }
}

/// The wrong answer of a driver that implements only a specification before CSI 1.0, whose services have other names.
fn older_version() -> WrongAnswer {
    WrongAnswer {
        method: String::new(),
        promise: Some(REQUIRED.to_owned()),
        cause: "the driver serves CSI 0 (csi.v0.Identity), which is another protocol; Kubernetes speaks CSI 1 (csi.v1.Identity)".to_owned(),
        detail: String::new(),
        is_fatal: true,
    }
}

const EVERY_PLUGIN: Requirement =
    Requirement { promise: REQUIRED, of: "CSI requires it of every plugin", is_fatal: true };

/// Why a call has to be answered.
struct Requirement {
    /// The promise that is broken by leaving the call out; empty where CSI does not require it.
    promise: &'static str,
    of: &'static str,
    is_fatal: bool,
}

/// The wrong answer of a driver that answers `ready: false` until the end of its time to start, although it works: it has
/// answered a call about all its volumes.
pub(super) async fn ready_after_all(
    socket: &Path,
    controller: Option<&Path>,
    limit: Duration,
) -> Option<WrongAnswer> {
    let answers = Answers::ask(socket, controller, limit).await.ok()?;
    if !answers.wrong.is_empty() || !answers.capabilities.controller_can("LIST_VOLUMES") {
        return None;
    }
    let mut client = ControllerClient::new(channel(controller.unwrap_or(socket)).ok()?);
    client.list_volumes(within(v1::ListVolumesRequest::default(), limit)).await.ok()?;
    Some(WrongAnswer {
        method: "Probe".to_owned(),
        promise: Some("DRV-004".to_owned()),
        cause: "not ready to the end of the time to start, while ListVolumes is answered".to_owned(),
        detail: String::new(),
        is_fatal: true,
    })
}

/// The wrong answer of a driver that has not answered `Probe` in its time to start, and answers other calls.
pub(super) async fn answers_after_all(socket: &Path, within: Duration) -> Option<WrongAnswer> {
    let mut client = IdentityClient::new(channel(socket).ok()?);
    client.get_plugin_info(self::within(v1::GetPluginInfoRequest {}, within)).await.ok()?;
    Some(WrongAnswer {
        method: "Probe".to_owned(),
        promise: Some(ANSWERED.to_owned()),
        cause: NOT_ANSWERED.to_owned(),
        detail: format!("within {within:?}, while GetPluginInfo is"),
        is_fatal: true,
    })
}

/// Whether the driver says that it is ready. A driver without `Probe` is taken as ready.
pub(super) async fn probe(socket: &Path, limit: Duration) -> Result<bool, Status> {
    let mut client = IdentityClient::new(channel(socket)?);
    match client.probe(within(v1::ProbeRequest {}, limit)).await {
        Ok(answer) => Ok(answer.into_inner().ready.unwrap_or(true)),
        Err(status) if status.code() == Code::Unimplemented => Ok(true),
        Err(status) => Err(proxy::explained(status)),
    }
}

fn channel(socket: &Path) -> Result<Channel, Status> {
    proxy::connect(socket).map_err(|error| Status::unavailable(error.to_string()))
}

/// Why a plugin cannot have this name. CSI: a domain name of at most 63 characters, which begins and ends with a
/// letter or digit and holds letters, digits, dashes and dots.
fn wrong_name(name: &str) -> Option<&'static str> {
    let is_wrong = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-' && byte != b'.';
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    match name {
        "" => Some("the plugin's name is empty"),
        _ if bytes.len() > 63 => Some("the plugin's name has more than 63 characters"),
        _ if bytes.iter().copied().any(is_wrong) || !ends(bytes.first()) || !ends(bytes.last()) => {
            Some("the plugin's name is no domain name")
        }
        _ => None,
    }
}

/// Whether a name can be part of a socket's path: one component, and short enough for the kernel.
fn is_usable_in_paths(name: &str) -> bool {
    let is_harmless = |c: char| c != '/' && !c.is_control();
    !matches!(name, "" | "." | "..") && name.len() <= 63 && name.chars().all(is_harmless)
}

/// Why a node cannot have this id. CSI: not empty, at most 256 bytes.
fn wrong_node_id(id: &str) -> Option<&'static str> {
    match id.len() {
        0 => Some("the id of the node is empty"),
        1..=256 => None,
        _ => Some("the id of the node has more than 256 bytes"),
    }
}

/// CSI: a key is `name` or `prefix/name`, a value a name; names have at most 63 characters, begin and end with a letter
/// or digit, and hold letters, digits, dashes, underscores and dots.
fn is_wrong_segment(key: &str, value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_name = |name: &str, most: usize| {
        let bytes = name.as_bytes();
        bytes.len() <= most && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().copied().all(inner)
    };
    let good_key = match key.split_once('/') {
        Some((prefix, name)) => is_name(prefix, 253) && is_name(name, 63),
        None => is_name(key, 63),
    };
    !good_key || !is_name(value, 63)
}

/// Capabilities that are reported without another one that CSI requires with them: the call that reports them, and the
/// cause.
fn uncoupled(says: &Capabilities) -> Vec<(&'static str, &'static str)> {
    let (plugin, controller) =
        (|name: &str| says.plugin.contains(name), |name: &str| says.controller_can(name));
    let grows_nowhere = !controller("EXPAND_VOLUME") && !says.node_can("EXPAND_VOLUME");
    let rows = [
        (
            plugin("ONLINE") && grows_nowhere,
            "GetPluginCapabilities",
            "VolumeExpansion ONLINE is reported, and EXPAND_VOLUME by neither service",
        ),
        (
            plugin("OFFLINE") && !controller("EXPAND_VOLUME"),
            "GetPluginCapabilities",
            "VolumeExpansion OFFLINE is reported, and EXPAND_VOLUME not by the controller",
        ),
        (
            controller("LIST_VOLUMES_PUBLISHED_NODES") && !controller("PUBLISH_UNPUBLISH_VOLUME"),
            "ControllerGetCapabilities",
            "LIST_VOLUMES_PUBLISHED_NODES is reported, and PUBLISH_UNPUBLISH_VOLUME is not",
        ),
    ];
    rows.into_iter().filter(|(is_wrong, ..)| *is_wrong).map(|(_, method, cause)| (method, cause)).collect()
}

/// The beginning of a long answer.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_name_is_a_domain_name_of_at_most_63_characters() {
        let longest = format!("a{}", "b".repeat(62));
        for good in ["csi.example.com", "a", "9x", "A-b.c", longest.as_str()] {
            assert_eq!(wrong_name(good), None, "{good}");
        }
        let too_long = "a".repeat(64);
        for wrong in
            ["", ".a", "a.", "-a", "a/b", "../../tmp/x", "/etc", "a\nb", "a\0b", "ä.b", too_long.as_str()]
        {
            assert!(wrong_name(wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn name_that_leaves_its_directory_or_a_line_is_unusable() {
        for harmless in ["csi.example.com", "My Driver (v2)", "ä"] {
            assert!(is_usable_in_paths(harmless), "{harmless}");
        }
        let too_long = "a".repeat(64);
        for wrong in ["", ".", "..", "../x", "/etc", "a/b", "a\nb", "a\0b", "a\x1b[2J", too_long.as_str()] {
            assert!(!is_usable_in_paths(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn node_id_has_between_1_and_256_bytes() {
        assert_eq!(wrong_node_id(&"n".repeat(256)), None);
        assert!(wrong_node_id("").is_some());
        assert!(wrong_node_id(&"n".repeat(257)).is_some());
    }

    #[test]
    fn capabilities_go_together() {
        let says = |plugin: &[&str], controller: &[&str], node: &[&str]| {
            let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let (plugin, controller, node) = (set(plugin), set(controller), set(node));
            uncoupled(&Capabilities { plugin, controller, node, ..Capabilities::default() }).len()
        };
        assert_eq!(says(&["ONLINE"], &[], &["EXPAND_VOLUME"]), 0);
        assert_eq!(says(&["OFFLINE"], &["EXPAND_VOLUME"], &[]), 0);
        assert_eq!(says(&["ONLINE"], &[], &[]), 1);
        assert_eq!(says(&["OFFLINE"], &[], &["EXPAND_VOLUME"]), 1);
        let listed = "LIST_VOLUMES_PUBLISHED_NODES";
        assert_eq!(says(&[], &[listed, "PUBLISH_UNPUBLISH_VOLUME"], &[]), 0);
        assert_eq!(says(&[], &[listed], &[]), 1);
    }

    #[test]
    fn topology_segment_is_a_label() {
        for (key, value) in [("zone", "z1"), ("topology.csi.example.com/zone", "eu-west_1.a")] {
            assert!(!is_wrong_segment(key, value), "{key}: {value}");
        }
        for (key, value) in
            [("zone", ""), ("zone", "a b"), ("zone", "a\n"), ("a/b/c", "z"), ("/zone", "z"), ("", "z")]
        {
            assert!(is_wrong_segment(key, value), "{key:?}: {value:?}");
        }
    }
}
