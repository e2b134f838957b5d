//! Reconstruction from each kind of directory after a restart.

use std::path::Path;

use api::names::VolumeHandle;
use expect_test::{Expect, expect};
use host::fake::FakeKernel;
use plugin_api::{Found, Scene, VolumePlugin};

use crate::plugin::csi::CsiPlugin;
use crate::plugin::testing::Bench;
use crate::reconstruct::reconstruct;

const CSI: &str = "plugins/kubernetes.io/csi";
const DEVICES: &str = "plugins/kubernetes.io/csi/volumeDevices";

/// A node that was stopped.
struct Node {
    bench: Bench,
    kernel: FakeKernel,
}

impl Node {
    fn new() -> Self {
        let (bench, host) = Bench::simulated();
        Self { bench, kernel: host.kernel().clone() }
    }

    fn dir(&self, below: impl AsRef<Path>) {
        self.kernel.make_dir_all(&self.bench.path(below), 0o750).unwrap();
    }

    fn file(&self, below: impl AsRef<Path>, content: &str) {
        let path = self.bench.path(below);
        self.kernel.make_dir_all(path.parent().unwrap(), 0o750).unwrap();
        self.kernel.write_file(&path, content.as_bytes(), 0o600).unwrap();
    }

    fn link(&self, below: &str, target: &str) {
        let path = self.bench.path(below);
        self.kernel.make_dir_all(path.parent().unwrap(), 0o750).unwrap();
        self.kernel.symlink(Path::new(target), &path).unwrap();
    }

    /// The record of a volume of the bench's driver.
    fn record(&self, dir: &str, handle: &str) {
        let record = format!(r#"{{"driverName":"d.example","volumeHandle":"{handle}"}}"#);
        self.file(Path::new(dir).join("vol_data.json"), &record);
    }

    /// The staging path of a volume with this handle.
    fn stage(&self, handle: &str) -> String {
        format!("{CSI}/d.example/{}", VolumeHandle::new(handle).hashed())
    }

    fn has(&self, below: &str) -> bool {
        self.kernel.symlink_metadata(&self.bench.path(below)).is_ok()
    }

    fn scene(&self) -> Scene<'_> {
        let cx = &self.bench.context;
        Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api }
    }

    fn shown(&self, path: &Path) -> String {
        let path = path.strip_prefix(self.bench.path("")).unwrap().display().to_string();
        ["h", "lost", "z"].iter().fold(path, |path, handle| {
            path.replace(&VolumeHandle::new(*handle).hashed(), &format!("<{handle}>"))
        })
    }

    async fn is_read_back_as(&self, expected: Expect) {
        let read = reconstruct(self.scene(), &self.bench.registry).await;
        let mut lines = Vec::new();
        for known in &read.volumes {
            let pod = known.pod.as_ref().map_or("nobody", |pod| pod.as_str());
            lines.push(format!("{} of {pod}\n", known.volume));
        }
        for (found, failure) in &read.failed {
            lines.push(format!("{}: {}\n", self.shown(&found.path), failure.chain()));
        }
        for lost in &read.lost {
            lines.push(format!("lost: {} of {:?}\n", self.shown(&lost.at), lost.pods));
        }
        if read.incomplete {
            lines.push("there is more\n".to_owned());
        }
        expected.assert_eq(&lines.concat());
    }

    async fn has_lost(&self, expected: Expect) {
        let lost = CsiPlugin::new().find_unidentified_stages(&self.scene()).await;
        let lines = lost.iter().map(|lost| format!("{} of {:?}\n", self.shown(&lost.at), lost.pods));
        expected.assert_eq(&lines.collect::<String>());
    }

    /// The volume that a pod's directory without a record is identified as.
    async fn takes_for(&self, pod: &str) -> Option<String> {
        let found = Found {
            pod: pod.into(),
            plugin: "kubernetes.io/csi".into(),
            inner: "pv".into(),
            path: self.bench.path(format!("pods/{pod}/volumes/kubernetes.io~csi/pv")),
            mode: api::VolumeMode::Filesystem,
        };
        let known = CsiPlugin::new().identify_orphan(&self.scene(), &found).await.unwrap()?;
        Some(CsiPlugin::new().volume_name(&known.spec).unwrap())
    }
}

/// Each is named as it was when it was mounted: after the pod, unless pods can meet in it.
#[tokio::test]
async fn each_staged_volume_is_found_once_by_its_earlier_name() {
    let node = Node::new();
    node.dir("pods/u1/volumes/kubernetes.io~empty-dir/scratch");
    node.record("pods/u1/volumes/kubernetes.io~csi/pv", "h");
    node.record(&node.stage("h"), "h");
    node.link("pods/u1/volumeDevices/kubernetes.io~csi/disk", "/dev/loop0");
    node.record(&format!("{DEVICES}/disk/data"), "b");
    node.file(format!("{DEVICES}/disk/dev/u1"), "");
    node.file(format!("{DEVICES}/disk/dev/u2"), "");
    node.is_read_back_as(expect![[r#"
        kubernetes.io/csi/d.example^h of u1
        kubernetes.io/empty-dir/u1-scratch of u1
        kubernetes.io/csi/d.example^b of u1
        kubernetes.io/csi/d.example^h of nobody
        kubernetes.io/csi/d.example^b of u2
        kubernetes.io/csi/d.example^b of nobody
    "#]])
        .await;
}

#[tokio::test]
async fn a_plugin_without_devices_has_none_read_back() {
    let node = Node::new();
    node.link("pods/u1/volumeDevices/kubernetes.io~secret/disk", "/dev/loop0");
    node.is_read_back_as(expect![[r#"
        pods/u1/volumeDevices/kubernetes.io~secret/disk: plugin kubernetes.io/secret cannot map devices
    "#]])
        .await;
}

/// The target of the link belongs to another pod.
#[tokio::test]
async fn a_link_in_the_place_of_a_pods_volumes_is_not_followed() {
    let node = Node::new();
    node.dir("pods/u1/volumeDevices");
    node.dir("pods/u2/volumes/kubernetes.io~empty-dir/scratch");
    node.link("pods/u1/volumes", "../u2/volumes");
    node.is_read_back_as(expect![[r#"
        kubernetes.io/empty-dir/u2-scratch of u2
    "#]])
        .await;
}

#[tokio::test]
async fn a_file_in_the_place_of_all_pods_is_as_good_as_none() {
    let node = Node::new();
    node.file("pods", "");
    node.record(&node.stage("h"), "h");
    node.is_read_back_as(expect![[r#"
        kubernetes.io/csi/d.example^h of nobody
    "#]])
        .await;
}

/// A staging path without a record is identified if a pod's record names its volume.
#[tokio::test]
async fn stage_without_a_record_is_known_by_a_pods_record() {
    let node = Node::new();
    node.record("pods/u1/volumes/kubernetes.io~csi/pv", "h");
    node.dir(Path::new(&node.stage("h")).join("globalmount/data"));
    node.dir(Path::new(&node.stage("lost")).join("globalmount/data"));
    node.is_read_back_as(expect![[r#"
        kubernetes.io/csi/d.example^h of u1
        lost: plugins/kubernetes.io/csi/d.example/<lost>/globalmount of {}
    "#]])
        .await;
}

/// A record is written before the call that it is about, and removed after its undoing.
#[tokio::test]
async fn only_where_a_step_was_begun_can_anything_be_lost() {
    let node = Node::new();
    let stages = format!("{CSI}/d.example");
    node.dir(format!("{stages}/nothing"));
    node.dir(format!("{stages}/staged/globalmount"));
    node.file(format!("{stages}/damaged/vol_data.json"), "{");
    let dead = format!("{stages}/dead/globalmount");
    node.dir(&dead);
    let dead = node.bench.path(dead);
    node.kernel.mount("tmpfs", &dead, "tmpfs", &[]).unwrap();
    node.kernel.break_filesystem(&dead, nix::libc::ENOTCONN).unwrap();
    node.record(&node.stage("h"), "h");
    node.dir(Path::new(&node.stage("h")).join("globalmount"));
    node.record(&format!("{CSI}/e.example/{}", VolumeHandle::new("z").hashed()), "z");
    node.dir(format!("{DEVICES}/nothing/data"));
    node.dir(format!("{DEVICES}/staged/data"));
    node.dir(format!("{DEVICES}/staging/staged"));
    node.dir(format!("{DEVICES}/published/data"));
    node.file(format!("{DEVICES}/publish/published/u1"), "");
    node.file(format!("{DEVICES}/damaged/data/vol_data.json"), "{");
    node.record(&format!("{DEVICES}/disk/data"), "b");
    node.has_lost(expect![[r#"
        plugins/kubernetes.io/csi/d.example/damaged/globalmount of {}
        plugins/kubernetes.io/csi/d.example/dead/globalmount of {}
        plugins/kubernetes.io/csi/d.example/staged/globalmount of {}
        plugins/kubernetes.io/csi/e.example/<z>/globalmount of {}
        plugins/kubernetes.io/csi/volumeDevices/damaged/dev of {}
        plugins/kubernetes.io/csi/volumeDevices/published/dev of {"u1"}
        plugins/kubernetes.io/csi/volumeDevices/staged/dev of {}
    "#]])
        .await;
}

/// A directory of any name is a volume if it has a record.
#[tokio::test]
async fn a_device_may_be_named_as_the_directory_beside_it() {
    let node = Node::new();
    node.record(&format!("{DEVICES}/publish/data"), "b");
    node.is_read_back_as(expect![[r#"
        kubernetes.io/csi/d.example^b of nobody
    "#]])
        .await;
}

#[tokio::test]
async fn only_what_is_empty_is_removed_with_a_step_that_was_never_begun() {
    let node = Node::new();
    node.dir(format!("{DEVICES}/nothing"));
    node.dir(format!("{DEVICES}/kept/data/something"));
    node.dir(format!("{DEVICES}/kept/dev"));
    node.dir(format!("{DEVICES}/staged/data"));
    node.dir(format!("{DEVICES}/staging/staged"));
    CsiPlugin::new().find_staged(&node.scene()).await;
    assert!(!node.has(&format!("{DEVICES}/nothing")), "nothing was recorded there");
    assert!(node.has(&format!("{DEVICES}/kept/dev")), "something else is beside it");
    assert!(node.has(&format!("{DEVICES}/staged/data")), "the driver was asked for it");
}

/// The mounted file system identifies the volume, if only one volume has it.
#[tokio::test]
async fn a_mount_is_of_the_one_stage_that_shows_it() {
    let node = Node::new();
    let mount = |below: String| {
        node.dir(&below);
        node.kernel.mount("tmpfs", &node.bench.path(&below), "tmpfs", &[]).unwrap();
    };
    let bind = |from: &str, to: &str| {
        node.dir(to);
        node.kernel.bind(&node.bench.path(from), &node.bench.path(to), false).unwrap();
    };
    for handle in ["h", "z"] {
        node.record(&node.stage(handle), handle);
        mount(format!("{}/globalmount", node.stage(handle)));
    }
    let (h, z) = (format!("{}/globalmount", node.stage("h")), format!("{}/globalmount", node.stage("z")));
    bind(&h, "pods/u1/volumes/kubernetes.io~csi/pv/mount");
    assert_eq!(node.takes_for("u1").await.as_deref(), Some("d.example^h"));
    // A record of another volume in the same directory claims nothing.
    node.record("pods/u1/volumes/kubernetes.io~csi/pv", "h");
    assert_eq!(node.takes_for("u1").await.as_deref(), Some("d.example^h"));

    node.dir(format!("{z}/part"));
    bind(&format!("{z}/part"), "pods/u2/volumes/kubernetes.io~csi/pv/mount");
    assert_eq!(node.takes_for("u2").await.as_deref(), Some("d.example^z"), "a part of it");

    mount("disk".to_owned());
    node.dir("disk/a");
    node.dir("disk/b");
    let part = format!("{}/globalmount", node.stage("lost"));
    node.record(&node.stage("lost"), "lost");
    bind("disk/a", &part);
    bind("disk/b", "pods/u3/volumes/kubernetes.io~csi/pv/mount");
    assert_eq!(node.takes_for("u3").await, None, "another part of the same disk");

    bind("disk/a", "pods/u4/volumes/kubernetes.io~csi/pv/mount");
    assert_eq!(node.takes_for("u4").await.as_deref(), Some("d.example^lost"));
    let twin = node.stage("twin");
    node.record(&twin, "twin");
    bind("disk/a", &format!("{twin}/globalmount"));
    assert_eq!(node.takes_for("u4").await, None, "two show it");
}
