//! A container's configuration as the `config.json` of an OCI runtime.
//!
//! Looks at devices, whose numbers a runtime has to be told; touches nothing.

#![expect(clippy::disallowed_types, reason = "the types of the crate that defines the format")]

use std::path::{Path, PathBuf};

use host::{FileKind, Host, HostError};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder, LinuxDevice, LinuxDeviceBuilder,
    LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxHugepageLimit,
    LinuxHugepageLimitBuilder, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType,
    LinuxResources, LinuxResourcesBuilder, Mount, MountBuilder, ProcessBuilder, RootBuilder, Spec,
    SpecBuilder, UserBuilder,
};

use super::ContainerConfig;
use super::devices::Device;
use super::mounts::{self, Propagation, Source};

/// What an OCI runtime needs beside the configuration.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The root file system.
    pub rootfs: PathBuf,
    /// What is run, with its arguments.
    pub args: Vec<String>,
    /// The group of its user.
    pub group: u32,
}

/// Why there is no `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A device could not be looked at, or is none.
    #[error("cannot pass a device into the container")]
    Device(#[source] HostError),
    /// What is to be passed in as a device is something else: where it was wanted.
    #[error("`{0}` is not a device")]
    NotADevice(PathBuf),
    /// A part of it is not as the specification wants it.
    #[error("cannot write the container's configuration")]
    Spec(#[from] OciSpecError),
}

/// What an ordinary container may do as root.
const CAPABILITIES: [Capability; 14] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];

/// The `config.json` of a container.
///
/// Volumes of images are left out: their content is the runtime's business.
pub async fn spec(host: &dyn Host, config: &ContainerConfig, bundle: &Bundle) -> Result<Spec, OciError> {
    let devices = devices(host, &config.devices).await?;
    let user = UserBuilder::default()
        .uid(config.user.unwrap_or(0))
        .gid(bundle.group)
        .additional_gids(config.supplemental_groups.clone())
        .build()?;
    let environment = config.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let process = ProcessBuilder::default()
        .terminal(false)
        .user(user)
        .args(bundle.args.clone())
        .env(environment.collect::<Vec<_>>())
        .cwd("/")
        .capabilities(capabilities(config)?)
        .oom_score_adj(config.resources.oom_score_adj)
        .no_new_privileges(false)
        .build()?;
    let mut mounts = standard_mounts(config.privileged)?;
    for mount in &config.mounts {
        mounts.extend(bind(mount)?);
    }
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let linux = LinuxBuilder::default()
        .namespaces(namespaces()?)
        .resources(resources(config, &devices)?)
        .devices(devices)
        .masked_paths(paths(config.masked_paths))
        .readonly_paths(paths(config.read_only_paths))
        .build()?;
    let root = RootBuilder::default().path(&bundle.rootfs).readonly(false).build()?;
    let annotations = config.labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Ok(SpecBuilder::default()
        .root(root)
        .process(process)
        .hostname(config.hostname.clone())
        .mounts(mounts)
        .linux(linux)
        .annotations(annotations.collect::<std::collections::HashMap<_, _>>())
        .build()?)
}

fn capabilities(config: &ContainerConfig) -> Result<oci_spec::runtime::LinuxCapabilities, OciSpecError> {
    let set: std::collections::HashSet<Capability> = CAPABILITIES.into_iter().collect();
    let mut all = set.clone();
    if config.privileged {
        all.extend([
            Capability::SysAdmin,
            Capability::SysModule,
            Capability::SysPtrace,
            Capability::SysRawio,
            Capability::SysResource,
            Capability::SysTime,
            Capability::NetAdmin,
            Capability::DacReadSearch,
        ]);
    }
    LinuxCapabilitiesBuilder::default()
        .bounding(all.clone())
        .effective(all.clone())
        .permitted(all)
        .inheritable(std::collections::HashSet::new())
        .ambient(std::collections::HashSet::new())
        .build()
}

/// What every container has of the kernel's own file systems.
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

/// A volume, with everything mounted below it.
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

fn namespaces() -> Result<Vec<LinuxNamespace>, OciSpecError> {
    let kinds = [
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Mount,
    ];
    kinds.into_iter().map(|kind| LinuxNamespaceBuilder::default().typ(kind).build()).collect()
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
        // The kernel writes a `B` behind what Kubernetes writes an `i` behind.
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

/// Nothing, then what was asked for; everything for the privileged.
fn device_rules(
    config: &ContainerConfig,
    devices: &[LinuxDevice],
) -> Result<Vec<LinuxDeviceCgroup>, OciSpecError> {
    let all = LinuxDeviceCgroupBuilder::default().allow(config.privileged).access("rwm").build()?;
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

/// Where a container has its volumes, for a look at them from inside.
pub fn destinations(spec: &Spec) -> Vec<&Path> {
    let mounts = spec.mounts().iter().flatten();
    mounts
        .filter(|mount| mount.typ().as_deref() == Some("bind"))
        .map(|mount| mount.destination().as_path())
        .collect()
}
