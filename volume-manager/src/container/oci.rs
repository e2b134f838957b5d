//! A container's configuration as the `config.json` of an OCI runtime.
//!
//! Reads the numbers of devices, which a runtime needs; touches nothing.

#![expect(clippy::disallowed_types, reason = "the types of the crate that defines the format")]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use api::pod::SeLinuxOptions;
use api::runtime::Profile;
use host::{FileKind, Host, HostError};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilities, LinuxCapabilitiesBuilder, LinuxCpuBuilder, LinuxDevice,
    LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxHugepageLimit,
    LinuxHugepageLimitBuilder, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType,
    LinuxResources, LinuxResourcesBuilder, Mount, MountBuilder, Process, ProcessBuilder, RootBuilder, Spec,
    SpecBuilder, UserBuilder,
};

use super::ContainerConfig;
use super::devices::Device;
use super::mounts::{self, Propagation, Source};
use super::security::{Namespaces, Scope, Security, User};

/// The rest of the input for an OCI runtime.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The root file system.
    pub rootfs: PathBuf,
    /// The image's command; the container's replaces it.
    pub command: Vec<String>,
    /// The image's arguments; the container's replace them.
    pub args: Vec<String>,
    /// The group of the image's user; the pod's replaces it.
    pub group: u32,
}

/// Why there is no `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The numbers of a device could not be read.
    #[error("cannot pass a device into the container")]
    Device(#[source] HostError),
    /// A file to be passed in as a device is none; with its path in the container.
    #[error("`{0}` is not a device")]
    NotADevice(PathBuf),
    /// The user is a name that the image does not resolve.
    #[error("cannot run as `{0}`: the image has no user of this name")]
    UserName(String),
    /// A group is set without a user.
    #[error("cannot run as a group without a user")]
    GroupWithoutUser,
    /// A part of the configuration does not conform to the OCI specification.
    #[error("cannot write the container's configuration")]
    Spec(#[from] OciSpecError),
}

/// The `config.json` of a container.
///
/// It has no volumes of images and no seccomp filters: the runtime makes them.
pub async fn spec(host: &dyn Host, config: &ContainerConfig, bundle: &Bundle) -> Result<Spec, OciError> {
    let devices = devices(host, &config.devices).await?;
    let mut mounts = standard_mounts(config.security.privileged)?;
    for mount in &config.mounts {
        mounts.extend(bind(mount)?);
    }
    let security = &config.security;
    let read_only = security.read_only_paths.iter().map(|path| (*path).to_owned());
    let linux = LinuxBuilder::default()
        .namespaces(namespaces(&security.namespaces)?)
        .resources(resources(config, &devices)?)
        .devices(devices)
        .masked_paths(security.masked_paths.clone())
        .readonly_paths(read_only.collect::<Vec<_>>())
        .build()?;
    let root = RootBuilder::default().path(&bundle.rootfs).readonly(security.read_only_root).build()?;
    let kept = config.labels.iter().chain(&config.annotations);
    let annotations = kept.map(|(name, value)| ((*name).to_owned(), value.clone()));
    Ok(SpecBuilder::default()
        .root(root)
        .process(process(config, bundle)?)
        .hostname(config.hostname.clone())
        .mounts(mounts)
        .linux(linux)
        .annotations(annotations.collect::<HashMap<_, _>>())
        .build()?)
}

fn process(config: &ContainerConfig, bundle: &Bundle) -> Result<Process, OciError> {
    let security = &config.security;
    let uid = match &security.user {
        User::Number(number) => *number,
        User::Name(name) => return Err(OciError::UserName(name.clone())),
        User::Unknown if security.group.is_some() => return Err(OciError::GroupWithoutUser),
        User::Unknown => 0,
    };
    let user = UserBuilder::default()
        .uid(uid)
        .gid(security.group.unwrap_or(bundle.group))
        .additional_gids(security.supplemental_groups.clone())
        .build()?;
    let environment = config.environment.iter().map(|(name, value)| format!("{name}={}", value.reveal()));
    let program = config.program.reveal();
    // The image's arguments belong to the image's command.
    let (command, args) = match (program.command.as_slice(), program.args.as_slice()) {
        ([], []) => (&bundle.command[..], &bundle.args[..]),
        ([], args) => (&bundle.command[..], args),
        (command, args) => (command, args),
    };
    let mut process = ProcessBuilder::default()
        .terminal(program.tty)
        .user(user)
        .args([command, args].concat())
        .env(environment.collect::<Vec<_>>())
        .cwd(if program.working_dir.is_empty() { "/" } else { &program.working_dir })
        .capabilities(capabilities(security)?)
        .oom_score_adj(config.resources.oom_score_adj)
        .no_new_privileges(security.no_new_privileges);
    match &security.apparmor {
        Profile::RuntimeDefault => {}
        Profile::Unconfined => process = process.apparmor_profile("unconfined"),
        Profile::Localhost(name) => process = process.apparmor_profile(name),
    }
    if let Some(SeLinuxOptions { user, role, kind, level }) = &security.selinux {
        process = process.selinux_label(format!("{user}:{role}:{kind}:{level}"));
    }
    Ok(process.build()?)
}

fn capabilities(security: &Security) -> Result<LinuxCapabilities, OciSpecError> {
    let known = security.capabilities.iter().filter_map(|name| name.parse().ok());
    let all: HashSet<Capability> = known.collect();
    LinuxCapabilitiesBuilder::default()
        .bounding(all.clone())
        .effective(all.clone())
        .permitted(all)
        .inheritable(HashSet::new())
        .ambient(HashSet::new())
        .build()
}

/// The mounts of the kernel's file systems that each container has.
fn standard_mounts(privileged: bool) -> Result<Vec<Mount>, OciSpecError> {
    let read_only = if privileged { "rw" } else { "ro" };
    let mount = |at: &str, fs_type: &str, options: &[&str]| {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        MountBuilder::default().destination(at).typ(fs_type).source(fs_type).options(options).build()
    };
    Ok(vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"])?,
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"])?,
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"])?,
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", read_only])?,
    ])
}

/// The mount of a volume, with everything mounted below it.
fn bind(mount: &mounts::Mount) -> Result<Option<Mount>, OciSpecError> {
    let Source::Path(source) = &mount.source else { return Ok(None) };
    let propagation = match mount.propagation {
        Propagation::Private => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => "rshared",
    };
    let access = match (mount.read_only, mount.recursive_read_only) {
        (_, true) => "rro",
        (true, false) => "ro",
        (false, false) => "rw",
    };
    let options = ["rbind", propagation, access].map(str::to_owned).to_vec();
    let bind = MountBuilder::default()
        .destination(&mount.container_path)
        .typ("bind")
        .source(source)
        .options(options)
        .build()?;
    Ok(Some(bind))
}

/// The namespaces of the container alone. The network and those of the pod are made before it.
fn namespaces(shared: &Namespaces) -> Result<Vec<LinuxNamespace>, OciSpecError> {
    let kinds = [
        (LinuxNamespaceType::Pid, shared.pid != Scope::Node),
        (LinuxNamespaceType::Ipc, shared.ipc != Scope::Node),
        (LinuxNamespaceType::Uts, true),
        (LinuxNamespaceType::Mount, true),
    ];
    let own = kinds.into_iter().filter_map(|(kind, own)| own.then_some(kind));
    own.map(|kind| LinuxNamespaceBuilder::default().typ(kind).build()).collect()
}

async fn devices(host: &dyn Host, devices: &[Device]) -> Result<Vec<LinuxDevice>, OciError> {
    let mut found = Vec::new();
    for device in devices {
        let there = host.metadata(&device.host_path).await.map_err(OciError::Device)?;
        let kind = match there.kind {
            FileKind::BlockDevice => LinuxDeviceType::B,
            FileKind::CharDevice => LinuxDeviceType::C,
            _ => return Err(OciError::NotADevice(device.container_path.clone())),
        };
        let device = LinuxDeviceBuilder::default()
            .path(&device.container_path)
            .typ(kind)
            .major(i64::from(there.rdev.major))
            .minor(i64::from(there.rdev.minor))
            .file_mode(there.mode)
            .uid(there.uid)
            .gid(there.gid)
            .build()?;
        found.push(device);
    }
    Ok(found)
}

fn resources(config: &ContainerConfig, devices: &[LinuxDevice]) -> Result<LinuxResources, OciSpecError> {
    let wanted = &config.resources;
    let mut cpu = LinuxCpuBuilder::default().shares(wanted.cpu_shares).period(wanted.cpu_period);
    if wanted.cpu_quota > 0 {
        cpu = cpu.quota(i64::try_from(wanted.cpu_quota).unwrap_or(i64::MAX));
    }
    let mut memory = LinuxMemoryBuilder::default();
    if wanted.memory_limit > 0 {
        memory = memory.limit(i64::try_from(wanted.memory_limit).unwrap_or(i64::MAX));
    }
    let huge_pages = wanted.huge_pages.iter().map(|(size, limit)| {
        // The kernel writes `2MB` for the `2Mi` of Kubernetes.
        let size = size.replace('i', "B");
        LinuxHugepageLimitBuilder::default()
            .page_size(size)
            .limit(i64::try_from(*limit).unwrap_or(i64::MAX))
            .build()
    });
    LinuxResourcesBuilder::default()
        .cpu(cpu.build()?)
        .memory(memory.build()?)
        .hugepage_limits(huge_pages.collect::<Result<Vec<LinuxHugepageLimit>, _>>()?)
        .devices(device_rules(config, devices)?)
        .build()
}

/// The rules for devices: all are denied, then those of the container allowed; all are allowed if it is
/// privileged.
fn device_rules(
    config: &ContainerConfig,
    devices: &[LinuxDevice],
) -> Result<Vec<LinuxDeviceCgroup>, OciSpecError> {
    let all = LinuxDeviceCgroupBuilder::default().allow(config.security.privileged).access("rwm").build()?;
    let mut rules = vec![all];
    for (device, wanted) in devices.iter().zip(&config.devices) {
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(true)
            .typ(device.typ())
            .major(device.major())
            .minor(device.minor())
            .access(wanted.permissions)
            .build()?;
        rules.push(rule);
    }
    Ok(rules)
}

/// The mount points of volumes in the container, for checks from inside.
pub fn destinations(spec: &Spec) -> Vec<&Path> {
    let mounts = spec.mounts().iter().flatten();
    mounts
        .filter(|mount| mount.typ().as_deref() == Some("bind"))
        .map(|mount| mount.destination().as_path())
        .collect()
}
