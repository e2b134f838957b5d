//! User, groups, capabilities and confinement of a container.
//!
//! Reads the list of the node's processors, to mask their thermal state; touches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use api::names::OuterName;
use api::pod::SeLinuxOptions;
use api::runtime::Profile;
use api::{Container, Pod};
use host::Host;
use plugin_api::paths::Paths;

use super::{ContainerError, Request, capabilities};
use crate::event::MountedVolume;

/// Paths that are masked unless the container is privileged.
pub const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Paths that are read-only unless the container is privileged.
pub const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

const PROCESSORS: &str = "/sys/devices/system/cpu";

/// User, groups, capabilities and confinement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    pub user: User,
    /// The primary group; `None` leaves it to the image.
    pub group: Option<u32>,
    pub supplemental_groups: Vec<u32>,
    /// Whether the image may add supplemental groups: the pod's `supplementalGroupsPolicy`.
    pub supplemental_groups_policy: String,
    pub privileged: bool,
    /// The capabilities of its root user.
    pub capabilities: BTreeSet<String>,
    /// Whether the container's processes cannot gain privileges.
    pub no_new_privileges: bool,
    /// Whether the container's root file system is read-only.
    pub read_only_root: bool,
    /// The seccomp profile; one of the node's by its path.
    pub seccomp: Profile,
    pub apparmor: Profile,
    /// The SELinux label; `None` leaves it to the runtime.
    pub selinux: Option<SeLinuxOptions>,
    pub namespaces: Namespaces,
    /// The masked paths; none if it is privileged.
    pub masked_paths: Vec<String>,
    /// The read-only paths; none if it is privileged.
    pub read_only_paths: &'static [&'static str],
}

/// The user of a container or of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Number(u32),
    /// A name that only the image can resolve.
    Name(String),
    /// Neither pod nor image sets one.
    Unknown,
}

/// The scope of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Container,
    /// The containers of the pod.
    Pod,
    Node,
    /// One container of the pod, the target of an ephemeral container.
    Target(String),
}

/// The scopes of a container's namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    pub network: Scope,
    pub pid: Scope,
    pub ipc: Scope,
    pub user: Scope,
}

impl Namespaces {
    fn of(pod: &Pod, container: &Container) -> Self {
        let of_node = |shared| if shared { Scope::Node } else { Scope::Pod };
        let pid = match container.target.as_str() {
            "" if pod.host_pid => Scope::Node,
            "" if pod.shares_processes => Scope::Pod,
            "" => Scope::Container,
            target => Scope::Target(target.to_owned()),
        };
        let network = of_node(pod.host_network);
        Self { network, pid, ipc: of_node(pod.host_ipc), user: of_node(!pod.user_namespace) }
    }
}

impl Security {
    /// The container's settings, over those of its pod.
    pub(super) async fn of(
        host: &dyn Host,
        paths: &Paths,
        request: &Request<'_>,
    ) -> Result<Self, ContainerError> {
        let Request { pod, container, volumes, image_user, .. } = *request;
        let confinement = container.confinement.or(&pod.security.confinement);
        let user = container.run_as_user.or(pod.security.run_as_user);
        if confinement.run_as_non_root == Some(true) {
            verify_non_root(user, image_user)?;
        }
        let privileged = container.privileged;
        // A privileged container is not confined, even if it asks for it.
        let profile = |wanted: Option<Profile>, default| match privileged {
            true => Profile::Unconfined,
            false => wanted.unwrap_or(default),
        };
        let seccomp = match profile(confinement.seccomp, Profile::Unconfined) {
            Profile::Localhost(name) => {
                Profile::Localhost(paths.root().join("seccomp").join(name).display().to_string())
            }
            other => other,
        };
        let selinux = container.selinux.as_deref().or(pod.security.selinux.as_deref());
        let sees_all = privileged || container.powers.unmasked_proc;
        Ok(Self {
            user: user.map_or_else(|| image_user.clone(), User::Number),
            group: confinement.run_as_group,
            supplemental_groups: supplemental_groups(pod, volumes),
            supplemental_groups_policy: pod.security.supplemental_groups_policy.clone(),
            privileged,
            capabilities: capabilities::of(privileged, &container.powers)?,
            no_new_privileges: container.powers.no_new_privileges,
            read_only_root: container.powers.read_only_root,
            seccomp,
            apparmor: profile(confinement.apparmor, Profile::RuntimeDefault),
            selinux: selinux.filter(|_| !privileged).cloned(),
            namespaces: Namespaces::of(pod, container),
            masked_paths: if sees_all { Vec::new() } else { masked(host).await },
            read_only_paths: if sees_all { &[] } else { READ_ONLY },
        })
    }
}

/// The masked paths. The thermal state of each processor is one of them: it shows the work of other containers.
async fn masked(host: &dyn Host) -> Vec<String> {
    let processors = host.read_dir(Path::new(PROCESSORS)).await.unwrap_or_default().into_iter();
    let mut throttles: Vec<String> = processors
        .filter_map(|entry| entry.name.into_string().ok())
        .filter(|name| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok()))
        .map(|name| format!("{PROCESSORS}/{name}/thermal_throttle"))
        .collect();
    throttles.sort();
    MASKED.iter().map(|path| (*path).to_owned()).chain(throttles).collect()
}

/// The supplemental groups: `fsGroup`, those of the pod, and those of its volumes' annotations, in this order.
fn supplemental_groups(pod: &Pod, volumes: &BTreeMap<OuterName, MountedVolume>) -> Vec<u32> {
    let mut groups: Vec<u32> = pod.security.fs_group.into_iter().collect();
    groups.extend(&pod.security.supplemental_groups);
    for volume in volumes.values() {
        // An annotation that is no number is ignored.
        let group = volume.gid.as_deref().and_then(|gid| gid.parse().ok());
        groups.extend(group.filter(|group| !groups.contains(group)));
    }
    groups
}

/// Refuses a container with `runAsNonRoot` that runs as root, or may.
fn verify_non_root(user: Option<u32>, image: &User) -> Result<(), ContainerError> {
    let root = |text: String| Err(ContainerError::Root(text));
    match (user, image) {
        (Some(0), _) => root("container's runAsUser breaks non-root policy".to_owned()),
        (Some(_), _) | (None, User::Unknown) => Ok(()),
        (None, User::Number(0)) => root("image will run as root".to_owned()),
        (None, User::Number(_)) => Ok(()),
        (None, User::Name(name)) => {
            root(format!("image has non-numeric user ({name}), cannot verify user is non-root"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_refused_and_so_is_a_name_that_may_be_roots() {
        use User::{Name, Number, Unknown};
        for (user, image, fine) in [
            (Some(0), Number(1), false),
            (Some(7), Number(0), true),
            (None, Number(0), false),
            (None, Number(7), true),
            (None, Name("www".into()), false),
            (None, Unknown, true),
        ] {
            assert_eq!(verify_non_root(user, &image).is_ok(), fine, "{user:?} {image:?}");
        }
    }

    #[test]
    fn namespaces_follow_the_pod() {
        let words = |pod: &Pod, container: &Container| {
            let Namespaces { network, pid, ipc, user } = Namespaces::of(pod, container);
            format!("{network:?} {pid:?} {ipc:?} {user:?}")
        };
        let mut container = Container::default();
        let mut pod = Pod::default();
        assert_eq!(words(&pod, &container), "Pod Container Pod Node");
        (pod.shares_processes, pod.user_namespace) = (true, true);
        assert_eq!(words(&pod, &container), "Pod Pod Pod Pod");
        (pod.host_network, pod.host_pid, pod.host_ipc, pod.user_namespace) = (true, true, true, false);
        assert_eq!(words(&pod, &container), "Node Node Node Node");
        container.target = "main".into();
        assert_eq!(words(&pod, &container), "Node Target(\"main\") Node Node");
    }
}
