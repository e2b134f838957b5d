//! Fields of a container for its runtime that do not concern volumes.

use serde::{Deserialize, Serialize};

/// The program of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    pub image: String,
    /// The command, instead of the image's.
    pub command: Vec<String>,
    /// Its arguments, instead of the image's.
    pub args: Vec<String>,
    /// The working directory; empty for the image's.
    pub working_dir: String,
    /// Whether its standard input is kept open.
    pub stdin: bool,
    /// Whether its standard input ends with the first attached client.
    pub stdin_once: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The stop signal; empty for the image's.
    pub stop_signal: String,
}

/// A port of a container, in the JSON of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    /// Its name; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The node's port that leads to it; zero for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub host_port: i32,
    /// Its number in the container.
    pub container_port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// The node's address that leads to it; empty for any.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The confinement of a container, from its own security context or the pod's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// The group it runs as.
    pub run_as_group: Option<u32>,
    /// Whether it must not run as root.
    pub run_as_non_root: Option<bool>,
    /// The seccomp profile, which limits its system calls.
    pub seccomp: Option<Profile>,
    /// The AppArmor profile, which limits its files.
    pub apparmor: Option<Profile>,
}

impl Confinement {
    /// The effective confinement of a container: its own fields, and the pod's for those it does not set.
    pub fn or(&self, pods: &Self) -> Self {
        Self {
            run_as_group: self.run_as_group.or(pods.run_as_group),
            run_as_non_root: self.run_as_non_root.or(pods.run_as_non_root),
            seccomp: self.seccomp.clone().or_else(|| pods.seccomp.clone()),
            apparmor: self.apparmor.clone().or_else(|| pods.apparmor.clone()),
        }
    }
}

/// A set of rules by which a container is confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// The profile that the container runtime brings.
    RuntimeDefault,
    /// No profile.
    Unconfined,
    /// A profile of the node, by its name.
    Localhost(String),
}

/// Privileges that a container's security context sets and a pod's cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Powers {
    /// Capabilities beside the usual ones; `ALL` for all.
    pub add: Vec<String>,
    /// Usual capabilities that it does not get.
    pub drop: Vec<String>,
    /// Whether it cannot gain privileges (`allowPrivilegeEscalation: false`).
    pub no_new_privileges: bool,
    /// Whether it cannot write to its root.
    pub read_only_root: bool,
    /// Whether it sees all of `/proc` (`procMount: Unmasked`).
    pub unmasked_proc: bool,
}
