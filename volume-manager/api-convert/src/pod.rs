//! Pods.

use std::collections::BTreeMap;

use api::object::Meta;
use api::pod::{
    Container, ContainerKind, Content, DownwardItem, HostAlias, InlineCsi, KeyFile, Pod, PodSecurity,
    PodVolume, Projection, SeLinuxOptions, VolumeDevice, VolumeMount, VolumeSource,
};
use api::runtime::Confinement;
use api::storage::FlexVolume;
use k8s_openapi::api::core::v1 as core;

use super::{Bad, environment, id, mode, quantity, runtime, storage};

/// The mode of a projected volume's files unless the pod sets another.
const DEFAULT_MODE: i32 = 0o644;
/// The default lifetime of a projected token.
const DEFAULT_EXPIRATION: i64 = 3600;

pub(super) fn pod(pod: core::Pod, meta: Meta) -> Result<Pod, Bad> {
    let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    let mut containers = Vec::new();
    for (kind, of_kind) in [
        (ContainerKind::Init, spec.init_containers.unwrap_or_default()),
        (ContainerKind::Regular, spec.containers),
    ] {
        for container in of_kind {
            let kind = match container.restart_policy.as_deref() {
                Some("Always") => ContainerKind::Sidecar,
                _ => kind,
            };
            containers.push(self::container(kind, container)?);
        }
    }
    for mut ephemeral in spec.ephemeral_containers.unwrap_or_default() {
        let target = ephemeral.target_container_name.take().unwrap_or_default();
        containers.push(Container { target, ..container(ContainerKind::Ephemeral, regular(ephemeral))? });
    }
    let volumes = spec.volumes.unwrap_or_default().into_iter().map(volume);
    let aliases = spec.host_aliases.unwrap_or_default().into_iter();
    let service_account = spec.service_account_name.or(spec.service_account);
    Ok(Pod {
        meta,
        node: spec.node_name.unwrap_or_default(),
        service_account: service_account.unwrap_or_else(|| "default".to_owned()),
        volumes: volumes.collect::<Result<_, _>>()?,
        resources: spec.resources.map(|own| pod_resources(own, &containers)).unwrap_or_default(),
        containers,
        security: spec.security_context.map(security).transpose()?.unwrap_or_default(),
        phase: status.phase.unwrap_or_default(),
        ips: match status.pod_ips.unwrap_or_default() {
            none if none.is_empty() => status.pod_ip.into_iter().collect(),
            all => all.into_iter().map(|ip| ip.ip).collect(),
        },
        host_ips: status.host_ips.unwrap_or_default().into_iter().map(|ip| ip.ip).collect(),
        host_network: spec.host_network.unwrap_or_default(),
        hostname: spec.hostname.unwrap_or_default(),
        hostname_override: spec.hostname_override,
        subdomain: spec.subdomain.unwrap_or_default(),
        without_services: spec.enable_service_links == Some(false),
        host_aliases: aliases
            .map(|alias| HostAlias { ip: alias.ip, names: alias.hostnames.unwrap_or_default() })
            .collect(),
        user_namespace: spec.host_users == Some(false),
        host_pid: spec.host_pid.unwrap_or_default(),
        host_ipc: spec.host_ipc.unwrap_or_default(),
        shares_processes: spec.share_process_namespace.unwrap_or_default(),
        // The API server's default.
        termination_grace: spec.termination_grace_period_seconds.or(Some(30)),
        node_critical: spec.priority_class_name.as_deref() == Some("system-node-critical"),
        priority: spec.priority.unwrap_or_else(|| priority(spec.priority_class_name.as_deref())),
    })
}

/// The priority of a class that each cluster has; that of other classes is in objects that are not read here.
fn priority(class: Option<&str>) -> i32 {
    match class {
        Some("system-cluster-critical") => 2_000_000_000,
        Some("system-node-critical") => 2_000_001_000,
        _ => 0,
    }
}

/// An ephemeral container has all that counts here under the same names.
fn regular(ephemeral: core::EphemeralContainer) -> core::Container {
    core::Container {
        name: ephemeral.name,
        volume_mounts: ephemeral.volume_mounts,
        volume_devices: ephemeral.volume_devices,
        security_context: ephemeral.security_context,
        resources: ephemeral.resources,
        env: ephemeral.env,
        env_from: ephemeral.env_from,
        termination_message_path: ephemeral.termination_message_path,
        termination_message_policy: ephemeral.termination_message_policy,
        image: ephemeral.image,
        command: ephemeral.command,
        args: ephemeral.args,
        working_dir: ephemeral.working_dir,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        tty: ephemeral.tty,
        ..core::Container::default()
    }
}

fn container(kind: ContainerKind, mut container: core::Container) -> Result<Container, Bad> {
    let lifecycle = container.lifecycle.take().unwrap_or_default();
    let program = runtime::program(&mut container, lifecycle.stop_signal);
    let security = container.security_context.unwrap_or_default();
    let resources = container.resources.unwrap_or_default();
    let limit = resources.limits.as_ref().and_then(|limits| limits.get("ephemeral-storage"));
    let limit = limit.map(quantity).transpose()?;
    let mut resources = resources_as_written(resources);
    // The API server's default: a resource without a request is requested up to its limit.
    request_limits(&mut resources, |_, limit| limit.to_owned());
    let imports = container.env_from.unwrap_or_default().into_iter();
    let variables = container.env.unwrap_or_default().into_iter();
    let path = container.termination_message_path;
    Ok(Container {
        name: container.name,
        kind,
        mounts: container.volume_mounts.unwrap_or_default().into_iter().map(mount).collect(),
        devices: container
            .volume_devices
            .unwrap_or_default()
            .into_iter()
            .map(|device| VolumeDevice { volume: device.name, path: device.device_path })
            .collect(),
        run_as_user: security.run_as_user.map(id).transpose()?,
        powers: runtime::powers(&security),
        confinement: Confinement {
            run_as_group: security.run_as_group.map(id).transpose()?,
            run_as_non_root: security.run_as_non_root,
            seccomp: security.seccomp_profile.map(runtime::seccomp),
            apparmor: security.app_armor_profile.map(runtime::apparmor),
        },
        selinux: security.se_linux_options.map(selinux),
        privileged: security.privileged.unwrap_or_default(),
        program,
        ports: container.ports.unwrap_or_default().into_iter().map(runtime::port).collect(),
        pre_stop: lifecycle.pre_stop.map(|hook| runtime::written(&hook)),
        target: String::new(),
        ephemeral_storage_limit: limit,
        resources,
        termination_message_path: path.unwrap_or_else(|| "/dev/termination-log".to_owned()),
        termination_message_policy: container.termination_message_policy.unwrap_or_else(|| "File".to_owned()),
        imports: imports.filter_map(environment::import).collect(),
        environment: variables.map(environment::variable).collect(),
    })
}

/// Limits and requests by their names in the downward API.
fn resources_as_written(resources: core::ResourceRequirements) -> BTreeMap<String, String> {
    let written = |prefix: &'static str, list: Option<BTreeMap<String, super::Quantity>>| {
        let list = list.unwrap_or_default().into_iter();
        list.map(move |(name, amount)| (format!("{prefix}.{name}"), amount.0))
    };
    written("limits", resources.limits).chain(written("requests", resources.requests)).collect()
}

/// Requests what has a limit and no request.
fn request_limits(resources: &mut BTreeMap<String, String>, request: impl Fn(&str, &str) -> String) {
    let limits: Vec<(String, String)> = resources
        .iter()
        .filter_map(|(name, amount)| Some((name.strip_prefix("limits.")?.to_owned(), amount.clone())))
        .collect();
    for (name, limit) in limits {
        resources.entry(format!("requests.{name}")).or_insert_with(|| request(&name, &limit));
    }
}

/// The resources of a pod as a whole. Without a request of its own it requests what its containers do together, or up
/// to its limit where they request nothing.
fn pod_resources(own: core::ResourceRequirements, containers: &[Container]) -> BTreeMap<String, String> {
    let mut resources = resources_as_written(own);
    request_limits(&mut resources, |name, limit| {
        let key = format!("requests.{name}");
        let mut requests = containers.iter().filter_map(|container| container.resources.get(&key)).peekable();
        match requests.peek() {
            None => limit.to_owned(),
            Some(_) => {
                let amounts: Option<Vec<u64>> =
                    requests.map(|text| api::Bytes::from_quantity(text).map(|amount| amount.0)).collect();
                amounts.map_or_else(|| limit.to_owned(), |amounts| amounts.iter().sum::<u64>().to_string())
            }
        }
    });
    resources
}

fn mount(mount: core::VolumeMount) -> VolumeMount {
    VolumeMount {
        volume: mount.name,
        path: mount.mount_path,
        read_only: mount.read_only.unwrap_or_default(),
        recursive_read_only: mount.recursive_read_only.unwrap_or_default(),
        sub_path: mount.sub_path.unwrap_or_default(),
        sub_path_expr: mount.sub_path_expr.unwrap_or_default(),
        propagation: mount.mount_propagation.unwrap_or_default(),
    }
}

fn security(security: core::PodSecurityContext) -> Result<PodSecurity, Bad> {
    let groups = security.supplemental_groups.unwrap_or_default().into_iter().map(id);
    Ok(PodSecurity {
        fs_group: security.fs_group.map(id).transpose()?,
        fs_group_on_root_mismatch: security.fs_group_change_policy.as_deref() == Some("OnRootMismatch"),
        run_as_user: security.run_as_user.map(id).transpose()?,
        supplemental_groups: groups.collect::<Result<_, _>>()?,
        supplemental_groups_policy: security.supplemental_groups_policy.unwrap_or_default(),
        confinement: Confinement {
            run_as_group: security.run_as_group.map(id).transpose()?,
            run_as_non_root: security.run_as_non_root,
            seccomp: security.seccomp_profile.map(runtime::seccomp),
            apparmor: security.app_armor_profile.map(runtime::apparmor),
        },
        selinux: security.se_linux_options.map(selinux),
        selinux_recursive: security.se_linux_change_policy.as_deref() == Some("Recursive"),
    })
}

fn selinux(options: core::SELinuxOptions) -> Box<SeLinuxOptions> {
    Box::new(SeLinuxOptions {
        user: options.user.unwrap_or_default(),
        role: options.role.unwrap_or_default(),
        kind: options.type_.unwrap_or_default(),
        level: options.level.unwrap_or_default(),
    })
}

fn volume(volume: core::Volume) -> Result<PodVolume, Bad> {
    Ok(PodVolume { name: volume.name.as_str().into(), source: source(volume)? })
}

fn source(volume: core::Volume) -> Result<VolumeSource, Bad> {
    if let Some(claim) = volume.persistent_volume_claim {
        let read_only = claim.read_only.unwrap_or_default();
        return Ok(VolumeSource::Claim { claim: claim.claim_name, read_only });
    }
    if let Some(core::EphemeralVolumeSource { volume_claim_template: Some(template) }) = volume.ephemeral {
        return Ok(VolumeSource::Ephemeral { template: Box::new(storage::template(template)?) });
    }
    if let Some(csi) = volume.csi {
        return Ok(VolumeSource::Csi(InlineCsi {
            driver: csi.driver.into(),
            fs_type: csi.fs_type.unwrap_or_default(),
            read_only: csi.read_only.unwrap_or_default(),
            attributes: csi.volume_attributes.unwrap_or_default(),
            secret: csi.node_publish_secret_ref.map(|secret| secret.name),
        }));
    }
    if let Some(empty) = volume.empty_dir {
        let size_limit = empty.size_limit.as_ref().map(quantity).transpose()?;
        return Ok(VolumeSource::EmptyDir { medium: empty.medium.unwrap_or_default(), size_limit });
    }
    if let Some(path) = volume.host_path {
        return Ok(VolumeSource::HostPath { path: path.path, kind: path.type_.unwrap_or_default() });
    }
    if let Some(nfs) = volume.nfs {
        let read_only = nfs.read_only.unwrap_or_default();
        return Ok(VolumeSource::Nfs { server: nfs.server, path: nfs.path, read_only });
    }
    if let Some(flex) = volume.flex_volume {
        return Ok(VolumeSource::FlexVolume(Box::new(FlexVolume {
            driver: flex.driver,
            fs_type: flex.fs_type.unwrap_or_default(),
            read_only: flex.read_only.unwrap_or_default(),
            options: flex.options.unwrap_or_default(),
            secret: flex.secret_ref.map(|secret| secret.name),
            secret_namespace: String::new(),
        })));
    }
    if let Some(image) = volume.image {
        return Ok(VolumeSource::Image {
            reference: image.reference.unwrap_or_default(),
            pull_policy: image.pull_policy.unwrap_or_default(),
        });
    }
    if let Some(git) = volume.git_repo {
        return Ok(VolumeSource::GitRepo { repository: git.repository });
    }
    content(volume)
}

/// Volumes that are files made from objects.
fn content(volume: core::Volume) -> Result<VolumeSource, Bad> {
    let default = |given: Option<i32>| mode(given.unwrap_or(DEFAULT_MODE));
    if let Some(map) = volume.config_map {
        let content =
            Content { default_mode: default(map.default_mode)?, ..files(map.name, map.items, map.optional)? };
        return Ok(VolumeSource::ConfigMap(content));
    }
    if let Some(secret) = volume.secret {
        let name = secret.secret_name.unwrap_or_default();
        let content = Content {
            default_mode: default(secret.default_mode)?,
            ..files(name, secret.items, secret.optional)?
        };
        return Ok(VolumeSource::Secret(content));
    }
    if let Some(downward) = volume.downward_api {
        let items = downward_items(downward.items)?;
        return Ok(VolumeSource::DownwardApi { items, default_mode: default(downward.default_mode)? });
    }
    if let Some(projected) = volume.projected {
        let default_mode = default(projected.default_mode)?;
        let sources = projected.sources.unwrap_or_default().into_iter().map(projection);
        return Ok(VolumeSource::Projected { sources: sources.collect::<Result<_, _>>()?, default_mode });
    }
    Ok(VolumeSource::Other { kind: super::kind_of(&volume, &["name"]) })
}

fn files(name: String, items: Option<Vec<core::KeyToPath>>, optional: Option<bool>) -> Result<Content, Bad> {
    let file = |item: core::KeyToPath| {
        Ok(KeyFile { key: item.key, path: item.path, mode: item.mode.map(mode).transpose()? })
    };
    let items = items.unwrap_or_default().into_iter().map(file).collect::<Result<_, _>>()?;
    Ok(Content { name, items, default_mode: 0, optional: optional.unwrap_or_default() })
}

fn downward_items(items: Option<Vec<core::DownwardAPIVolumeFile>>) -> Result<Vec<DownwardItem>, Bad> {
    let item = |item: core::DownwardAPIVolumeFile| {
        let resource = item.resource_field_ref.unwrap_or_default();
        Ok(DownwardItem {
            path: item.path,
            field: item.field_ref.map(|field| field.field_path).unwrap_or_default(),
            resource: resource.resource,
            container: resource.container_name.unwrap_or_default(),
            divisor: resource.divisor.map(|divisor| divisor.0).unwrap_or_default(),
            mode: item.mode.map(mode).transpose()?,
        })
    };
    items.unwrap_or_default().into_iter().map(item).collect()
}

fn projection(projection: core::VolumeProjection) -> Result<Projection, Bad> {
    if let Some(secret) = projection.secret {
        return Ok(Projection::Secret(files(secret.name, secret.items, secret.optional)?));
    }
    if let Some(map) = projection.config_map {
        return Ok(Projection::ConfigMap(files(map.name, map.items, map.optional)?));
    }
    if let Some(downward) = projection.downward_api {
        return Ok(Projection::DownwardApi { items: downward_items(downward.items)? });
    }
    if let Some(token) = projection.service_account_token {
        return Ok(Projection::ServiceAccountToken {
            audience: token.audience.unwrap_or_default(),
            expiration: token.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION),
            path: token.path,
        });
    }
    Ok(Projection::Other { kind: super::kind_of(&projection, &[]) })
}
