//! Container configurations, made from volumes that are really mounted.

mod runtime;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::environment::Variable;
use api::names::OuterName;
use api::pod::{VolumeDevice, VolumeMount};
use api::{Container, PodVolume, VolumeMode, VolumeSource};
use expect_test::expect;
use plugin_api::Mounted;

use super::mounts::{Mount, Source};
use super::security::User;
use super::services::Services;
use super::{ContainerConfig, ContainerError, NodeFacts, Request, configure, log_directory, termination};
use crate::event::MountedVolume;
use crate::operation::Operation;
use crate::plugin::testing::Bench;

struct Scene {
    bench: Bench,
    container: Container,
    image_user: User,
    volumes: BTreeMap<OuterName, MountedVolume>,
    services: Services,
}

impl Scene {
    /// A pod with an address and an emptyDir `data`.
    async fn set() -> Option<Self> {
        let mut bench = Bench::new();
        if !bench.private_mounts().await {
            return None;
        }
        bench.pod.ips = vec!["10.0.0.7".into()];
        bench.inline(VolumeSource::EmptyDir { medium: String::new(), size_limit: None });
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let path = bench.path("pods/u1/volumes/kubernetes.io~empty-dir/data");
        let volumes = BTreeMap::from([("data".into(), volume(path))]);
        let container = Container { name: "main".into(), ..Container::default() };
        let services = Services::fixed([]);
        Some(Self { bench, container, image_user: User::Number(0), volumes, services })
    }

    fn mount(&mut self, change: impl FnOnce(&mut VolumeMount)) {
        let mut mount = VolumeMount { volume: "data".into(), path: "/data".into(), ..VolumeMount::default() };
        change(&mut mount);
        self.container.mounts.push(mount);
    }

    async fn configure(&self) -> Result<ContainerConfig, ContainerError> {
        let node = NodeFacts::default();
        let request = Request {
            pod: &self.bench.pod,
            container: &self.container,
            volumes: &self.volumes,
            attempt: 2,
            image_user: &self.image_user,
            node: &node,
            api: &*self.bench.api,
            services: &self.services,
        };
        configure(&*self.bench.context.host, &self.bench.context.paths, &request).await
    }

    async fn mounts(&self) -> String {
        let config = self.configure().await.unwrap();
        let line = |mount: &Mount| {
            let source = match &mount.source {
                Source::Path(path) => self.bench.story.symbolic(&path.display().to_string()),
                Source::Image { reference, sub_path } => format!("image {reference} {sub_path}"),
            };
            let flags = [
                (mount.read_only, " ro"),
                (mount.recursive_read_only, " rro"),
                (mount.selinux_relabel, " label"),
            ];
            let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
            format!(
                "{} {source} on {}{flags} {:?}\n",
                mount.name,
                mount.container_path.display(),
                mount.propagation
            )
        };
        config.mounts.iter().map(line).collect()
    }
}

fn volume(path: PathBuf) -> MountedVolume {
    MountedVolume {
        volume: "kubernetes.io/empty-dir/u1-data".into(),
        inner: "data".into(),
        plugin: "kubernetes.io/empty-dir".into(),
        mode: VolumeMode::Filesystem,
        mounted: Mounted { path, read_only: false, managed: true, selinux_relabel: true },
        gid: Some("77".into()),
        read_only: false,
    }
}

#[tokio::test]
async fn mounts_are_volumes_then_hosts_file_then_termination_log() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.container.termination_message_path = "/dev/termination-log".into();
    scene.container.environment.push(Variable::text("NAME", "mine"));
    scene.mount(|_| {});
    scene.mount(|mount| {
        mount.path = "relative".into();
        mount.read_only = true;
        mount.recursive_read_only = "IfPossible".into();
    });
    scene.mount(|mount| {
        mount.path = "/sub".into();
        mount.sub_path_expr = "logs/$(NAME)".into();
        mount.propagation = "HostToContainer".into();
    });
    expect![[r#"
        data $R/pods/u1/volumes/kubernetes.io~empty-dir/data on /data label Private
        data $R/pods/u1/volumes/kubernetes.io~empty-dir/data on /relative ro rro label Private
        data $R/pods/u1/volume-subpaths/data/main/2 on /sub label HostToContainer
        k8s-managed-etc-hosts $R/pods/u1/etc-hosts on /etc/hosts label Private
        termination-log $R/pods/u1/containers/main/00000002 on /dev/termination-log label Private
    "#]]
    .assert_eq(&scene.mounts().await);
    let made = scene.bench.path("pods/u1/volumes/kubernetes.io~empty-dir/data/logs/mine");
    assert_eq!(scene.bench.context.host.metadata(&made).await.unwrap().mode, 0o777);
    let words = scene.bench.path("pods/u1/containers/main/00000002");
    assert_eq!(scene.bench.context.host.metadata(&words).await.unwrap().mode, 0o666);

    // Unmounting the volume first unmounts its sub-path, which would keep it busy.
    scene.bench.run(Operation::Unmount(Arc::new(scene.bench.unmounting()))).await;
    let table = scene.bench.context.host.mount_table().await.unwrap();
    assert!(table.below(scene.bench.root.path()).next().is_none());
}

#[tokio::test]
async fn container_that_mounts_its_own_hosts_file_gets_no_other() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.mount(|mount| mount.path = "/etc/hosts".into());
    assert_eq!(scene.configure().await.unwrap().mounts.len(), 1);
}

/// The next start of a container rewrites the hosts file: without the container's lines, and with the pod's new addresses.
#[tokio::test]
async fn the_hosts_file_is_written_anew_at_each_start() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    let file = scene.bench.path("pods/u1/etc-hosts");
    scene.configure().await.unwrap();
    host.write_file(&file, &[b'x'; 4096], 0o600).await.unwrap();
    host.chmod(&file, 0o600).await.unwrap();
    scene.bench.pod.ips = vec!["10.0.0.8".into()];
    scene.configure().await.unwrap();
    let text = String::from_utf8(host.read_file(&file).await.unwrap()).unwrap();
    assert!(
        text.starts_with("# Kubernetes-managed hosts file.\n") && text.ends_with("\n10.0.0.8\tweb\n"),
        "{text}"
    );
    assert_eq!(host.metadata(&file).await.unwrap().mode, 0o644);

    // A pod without an address gets no hosts file, unless it uses the node's network.
    scene.bench.pod.ips.clear();
    assert_eq!(scene.configure().await.unwrap().mounts, []);
    scene.bench.pod.host_network = true;
    assert_eq!(scene.configure().await.unwrap().mounts.len(), 1);
    let text = String::from_utf8(host.read_file(&file).await.unwrap()).unwrap();
    assert!(text.starts_with("# Kubernetes-managed hosts file (host network).\n"), "{text}");
}

#[tokio::test]
async fn termination_message_is_the_end_of_its_file() {
    let Some(scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    let file = scene.bench.path("words");
    assert_eq!(termination::message(&*host, &file).await.unwrap(), b"", "no file");
    for (written, read) in [(10, 10), (4096, 4096), (5000, 4096), (17 << 20, 4096)] {
        let words: Vec<u8> = (0..written).map(|index: u32| index.to_le_bytes()[0]).collect();
        host.write_file(&file, &words, 0o600).await.unwrap();
        assert_eq!(termination::message(&*host, &file).await.unwrap(), words[words.len() - read..]);
    }
}

#[tokio::test]
async fn only_managed_volumes_with_selinux_support_are_relabelled() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.bench.pod.ips.clear();
    scene.mount(|_| {});
    for (managed, relabel) in [(true, true), (true, false), (false, true)] {
        let volume = scene.volumes.values_mut().next().unwrap();
        (volume.mounted.managed, volume.mounted.selinux_relabel) = (managed, relabel);
        assert_eq!(scene.configure().await.unwrap().mounts[0].selinux_relabel, managed && relabel);
    }
}

#[tokio::test]
async fn mount_keeps_its_propagation_and_is_read_only_if_its_volume_is() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.bench.pod.ips.clear();
    for word in ["", "None", "HostToContainer", "Bidirectional"] {
        scene.mount(|mount| mount.propagation = word.into());
    }
    let word = |mount: &Mount| format!("{:?}", mount.propagation);
    let mounts = scene.configure().await.unwrap().mounts;
    let words: Vec<String> = mounts.iter().map(word).collect();
    assert_eq!(words, ["Private", "Private", "HostToContainer", "Bidirectional"]);
    assert!(mounts.iter().all(|mount| !mount.read_only));
    scene.volumes.values_mut().next().unwrap().mounted.read_only = true;
    let mounts = scene.configure().await.unwrap().mounts;
    assert!(mounts.iter().all(|mount| mount.read_only), "the volume is read-only");
}

#[tokio::test]
async fn user_and_capabilities_follow_the_pod() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.bench.pod.security.fs_group = Some(5);
    scene.bench.pod.security.supplemental_groups = vec![6];
    scene.bench.pod.security.run_as_user = Some(1000);
    let config = scene.configure().await.unwrap();
    assert_eq!(config.security.supplemental_groups, [5, 6, 77]);
    assert_eq!((config.security.user, config.hostname.as_str()), (User::Number(1000), "web"));
    assert_eq!(config.log_path, PathBuf::from("main/2.log"));
    assert_eq!(log_directory(&scene.bench.pod), "default_web_u1");
    assert_eq!(config.labels["io.kubernetes.pod.uid"], "u1");
}

#[tokio::test]
async fn group_of_a_volume_is_added_once_if_it_is_a_number() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.bench.pod.security.supplemental_groups = vec![6];
    for (gid, groups) in [
        (Some("77"), &[6, 77][..]),
        (Some("6"), &[6]),
        (Some("staff"), &[6]),
        (Some("-1"), &[6]),
        (Some(""), &[6]),
        (None, &[6]),
    ] {
        scene.volumes.values_mut().next().unwrap().gid = gid.map(str::to_owned);
        assert_eq!(scene.configure().await.unwrap().security.supplemental_groups, groups, "{gid:?}");
    }
}

#[tokio::test]
async fn error_names_no_path_of_the_host() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    let root = scene.bench.path("pods/u1/volumes/kubernetes.io~empty-dir/data");
    host.symlink(std::path::Path::new("/etc"), &root.join("out")).await.unwrap();
    host.write_file(&root.join("file"), b"", 0o644).await.unwrap();
    scene.container.environment.extend([Variable::text("UP", ".."), Variable::text("ROOT", "/etc")]);
    type Change = fn(&mut VolumeMount);
    let cases: [(Change, &str); 9] = [
        (|m| m.volume = "nope".into(), "cannot find volume \"nope\" to mount into container \"main\""),
        (|m| m.sub_path = "/etc".into(), "error SubPath `/etc` must not be an absolute path"),
        (|m| m.sub_path = "a/..".into(), "unable to provision SubPath `a/..`: must not contain '..'"),
        (
            |m| m.sub_path = "out/passwd".into(),
            "failed to prepare subPath for volumeMount \"data\" of container \"main\"",
        ),
        (
            |m| m.sub_path = "file/below".into(),
            "failed to prepare subPath for volumeMount \"data\" of container \"main\"",
        ),
        (|m| m.sub_path_expr = "$(NOPE)".into(), "missing value for NOPE"),
        // The error shows the variable, since its value may be secret.
        (|m| m.sub_path_expr = "$(ROOT)".into(), "error SubPath `$(ROOT)` must not be an absolute path"),
        (
            |m| m.sub_path_expr = "$(UP)/x".into(),
            "unable to provision SubPath `$(UP)/x`: must not contain '..'",
        ),
        (|m| m.propagation = "Sideways".into(), "invalid MountPropagation mode: \"Sideways\""),
    ];
    for (change, text) in cases {
        scene.container.mounts.clear();
        scene.mount(change);
        let error = scene.configure().await.unwrap_err();
        assert_eq!(api::error::chain(&error), text);
    }
}

#[tokio::test]
async fn device_is_the_pods_link_and_read_only_if_its_claim_is() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.container.devices = vec![VolumeDevice { volume: "disk".into(), path: "/dev/xvda".into() }];
    let error = scene.configure().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot find volume \"disk\" to pass into container \"main\"");

    let mut disk = volume(PathBuf::new());
    (disk.plugin, disk.inner, disk.read_only) = ("kubernetes.io/csi".into(), "pv".into(), true);
    scene.volumes.insert("disk".into(), disk);
    let error = scene.configure().await.unwrap_err();
    assert!(matches!(error, ContainerError::NoDevice { .. }), "no container starts without its device");

    let host = Arc::clone(&scene.bench.context.host);
    let dir = scene.bench.path("pods/u1/volumeDevices/kubernetes.io~csi");
    host.make_dir_all(&dir, 0o750).await.unwrap();
    host.symlink(std::path::Path::new("/dev/null"), &dir.join("pv")).await.unwrap();
    let devices = scene.configure().await.unwrap().devices;
    assert_eq!((devices[0].permissions, &devices[0].host_path), ("r", &dir.join("pv")));

    scene.container.devices[0].path = "dev/xvda".into();
    let error = scene.configure().await.unwrap_err();
    assert_eq!(error.to_string(), "error DevicePath `dev/xvda` must be an absolute path");
}

#[tokio::test]
async fn image_volume_is_passed_to_the_runtime() {
    let Some(mut scene) = Scene::set().await else { return };
    let source = VolumeSource::Image { reference: "img:1".into(), pull_policy: String::new() };
    scene.bench.pod.volumes = vec![PodVolume { name: "img".into(), source }];
    let mut image = volume(PathBuf::new());
    image.mounted.read_only = true;
    scene.volumes.insert("img".into(), image);
    scene.mount(|mount| {
        mount.volume = "img".into();
        mount.sub_path = "part".into();
    });
    let mounts = scene.mounts().await;
    assert!(mounts.starts_with("img image img:1 part on /data ro"), "{mounts}");
}
