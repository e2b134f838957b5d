//! The program of a container, and its confinement.

use api::runtime::{Port, Powers, Profile, Program};
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;

/// Takes the program out of the container.
pub(super) fn program(container: &mut core::Container, stop_signal: Option<String>) -> Program {
    Program {
        image: container.image.take().unwrap_or_default(),
        command: container.command.take().unwrap_or_default(),
        args: container.args.take().unwrap_or_default(),
        working_dir: container.working_dir.take().unwrap_or_default(),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        stop_signal: stop_signal.unwrap_or_default(),
    }
}

pub(super) fn port(port: core::ContainerPort) -> Port {
    Port {
        name: port.name.unwrap_or_default(),
        host_port: port.host_port.unwrap_or_default(),
        container_port: port.container_port,
        protocol: port.protocol.unwrap_or_else(|| "TCP".to_owned()),
        host_ip: port.host_ip.unwrap_or_default(),
    }
}

pub(super) fn powers(security: &core::SecurityContext) -> Powers {
    let capabilities = security.capabilities.clone().unwrap_or_default();
    Powers {
        add: capabilities.add.unwrap_or_default(),
        drop: capabilities.drop.unwrap_or_default(),
        no_new_privileges: security.allow_privilege_escalation == Some(false),
        read_only_root: security.read_only_root_filesystem.unwrap_or_default(),
        unmasked_proc: security.proc_mount.as_deref() == Some("Unmasked"),
    }
}

pub(super) fn seccomp(profile: core::SeccompProfile) -> Profile {
    self::profile(&profile.type_, profile.localhost_profile)
}

pub(super) fn apparmor(profile: core::AppArmorProfile) -> Profile {
    self::profile(&profile.type_, profile.localhost_profile)
}

/// The API server lets no other kind pass.
fn profile(kind: &str, name: Option<String>) -> Profile {
    match kind {
        "Unconfined" => Profile::Unconfined,
        "Localhost" => Profile::Localhost(name.unwrap_or_default()),
        _ => Profile::RuntimeDefault,
    }
}

/// An object in the API's JSON.
pub(super) fn written(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("what was read can be written")
}
