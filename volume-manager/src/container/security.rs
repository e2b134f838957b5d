//! Users and groups of a container, what it may do, and what it does not get to see.
//!
//! Looks at the node's processors, of which containers are not shown everything; touches nothing.

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

/// Paths an ordinary container does not see.
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

/// Paths an ordinary container cannot write to.
pub const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Where the node's processors are.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Who a container is, what it may do, and what confines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// The user it runs as.
    pub user: User,
    /// The group it runs as, unless that is the image's business.
    pub group: Option<u32>,
    /// Its groups beside its user's own.
    pub supplemental_groups: Vec<u32>,
    /// Whether the image may add to them, as the pod says it.
    pub supplemental_groups_policy: String,
    /// Whether it may do anything.
    pub privileged: bool,
    /// The capabilities it has as root.
    pub capabilities: BTreeSet<String>,
    /// Whether it never gets more than it has at first.
    pub no_new_privileges: bool,
    /// Whether it cannot write to its root.
    pub read_only_root: bool,
    /// Which system calls it may make; one of the node's by its path.
    pub seccomp: Profile,
    /// Which files it may use, beside all other rules.
    pub apparmor: Profile,
    /// Its SELinux label; `None` leaves it to the runtime.
    pub selinux: Option<SeLinuxOptions>,
    /// What it shares with others.
    pub namespaces: Namespaces,
    /// Paths it does not see; none if it is privileged.
    pub masked_paths: Vec<String>,
    /// Paths it cannot write to; none if it is privileged.
    pub read_only_paths: &'static [&'static str],
}

/// The user a container runs as, or that an image says its containers run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// By number.
    Number(u32),
    /// By a name that only the image can resolve.
    Name(String),
    /// Not at all.
    Unknown,
}

/// With whom a container shares a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// With nobody.
    Container,
    /// With the containers of its pod.
    Pod,
    /// With the node.
    Node,
    /// With one container of its pod, which it is to look into.
    Target(String),
}

/// What a container shares with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    pub network: Scope,
    /// Processes.
    pub pid: Scope,
    /// Shared memory.
    pub ipc: Scope,
    /// Users.
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
    /// What a container says of itself, and where it says nothing what its pod says.
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
        // The privileged is confined by nothing, whatever it asks for.
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
        let selinux = container.selinux.clone().or_else(|| pod.security.selinux.clone());
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
            selinux: selinux.filter(|_| !privileged),
            namespaces: Namespaces::of(pod, container),
            masked_paths: if sees_all { Vec::new() } else { masked(host).await },
            read_only_paths: if sees_all { &[] } else { READ_ONLY },
        })
    }
}

/// What is hidden, with how hot each processor is, by which one container could watch the others work.
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

/// The groups of a container beside its user's own: the volumes' group, the pod's, and those that volumes
/// bring along, in this order.
fn supplemental_groups(pod: &Pod, volumes: &BTreeMap<OuterName, MountedVolume>) -> Vec<u32> {
    let mut groups: Vec<u32> = pod.security.fs_group.into_iter().collect();
    groups.extend(&pod.security.supplemental_groups);
    for volume in volumes.values() {
        // What is no number is nobody's group.
        let group = volume.gid.as_deref().and_then(|gid| gid.parse().ok());
        groups.extend(group.filter(|group| !groups.contains(group)));
    }
    groups
}

/// Makes sure that a container that must not run as root does not.
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
        let told = |pod: &Pod, container: &Container| {
            let Namespaces { network, pid, ipc, user } = Namespaces::of(pod, container);
            format!("{network:?} {pid:?} {ipc:?} {user:?}")
        };
        let mut container = Container::default();
        let mut pod = Pod::default();
        assert_eq!(told(&pod, &container), "Pod Container Pod Node");
        (pod.shares_processes, pod.user_namespace) = (true, true);
        assert_eq!(told(&pod, &container), "Pod Pod Pod Pod");
        (pod.host_network, pod.host_pid, pod.host_ipc, pod.user_namespace) = (true, true, true, false);
        assert_eq!(told(&pod, &container), "Node Node Node Node");
        container.target = "main".into();
        assert_eq!(told(&pod, &container), "Node Target(\"main\") Node Node");
    }
}
