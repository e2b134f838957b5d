//! Every path the manager ever makes below its root directory, one function each.
//!
//! The table these come from is the on-disk layout of the kubelet, which drivers and tools rely on: nothing
//! here may change without changing what others see. Nothing here touches a file.

use std::path::{Path, PathBuf};

use api::names::{ContainerName, DriverName, PluginName, PodUid, SpecName, VolumeHandle, escape};

/// The layout below one root directory, `/var/lib/kubelet` on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// Lays the directories out below `root`, which is in canonical form already.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root directory itself, a shared mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where every pod has a directory.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// Where plugins keep what belongs to the node and not to a pod.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// Where drivers put their registration sockets.
    pub fn registrations(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// Where a plugin is told that its mounts are to be made inside a container.
    pub fn plugin_container(&self, plugin: &PluginName) -> PathBuf {
        self.root.join("plugin-containers").join(format!("{}.json", plugin.escaped()))
    }

    /// The directory of a pod.
    pub fn pod(&self, pod: &PodUid) -> PathBuf {
        self.pods().join(pod.as_str())
    }

    /// The file-system volumes of a pod, one directory per plugin.
    pub fn pod_volumes(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volumes")
    }

    /// The block volumes of a pod, one directory per plugin.
    pub fn pod_devices(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volumeDevices")
    }

    /// What plugins keep about a pod beside its volumes.
    pub fn pod_plugins(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("plugins")
    }

    /// What plugins keep about one volume of a pod, such as the ready marker of an emptyDir.
    pub fn pod_plugin(&self, pod: &PodUid, plugin: &PluginName, volume: &str) -> PathBuf {
        self.pod_plugins(pod).join(plugin.escaped()).join(volume)
    }

    /// The directory of one file-system volume of a pod.
    pub fn pod_volume(&self, pod: &PodUid, plugin: &PluginName, inner: &SpecName) -> PathBuf {
        self.pod_volumes(pod).join(plugin.escaped()).join(inner.as_str())
    }

    /// Where the links of a pod's block volumes of one plugin are (the "pod device map path").
    pub fn pod_device_dir(&self, pod: &PodUid, plugin: &PluginName) -> PathBuf {
        self.pod_devices(pod).join(plugin.escaped())
    }

    /// The link that reaches one block volume of a pod.
    pub fn pod_device(&self, pod: &PodUid, plugin: &PluginName, inner: &SpecName) -> PathBuf {
        self.pod_device_dir(pod, plugin).join(inner.as_str())
    }

    /// Everything a pod's containers see of its volumes through a sub-path.
    pub fn pod_subpaths(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volume-subpaths")
    }

    /// Where the sub-paths of one volume of a pod are bound, by container and index.
    pub fn volume_subpaths(&self, pod: &PodUid, inner: &SpecName) -> PathBuf {
        self.pod_subpaths(pod).join(inner.as_str())
    }

    /// Where one sub-path is bound: `index` counts the container's volume mounts.
    pub fn subpath(
        &self,
        pod: &PodUid,
        inner: &SpecName,
        container: &ContainerName,
        index: usize,
    ) -> PathBuf {
        self.volume_subpaths(pod, inner).join(container.as_str()).join(index.to_string())
    }

    /// What a pod keeps for one of its containers.
    pub fn pod_container(&self, pod: &PodUid, container: &ContainerName) -> PathBuf {
        self.pod(pod).join("containers").join(container.as_str())
    }

    /// The hosts file of a pod.
    pub fn etc_hosts(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("etc-hosts")
    }
}

/// What only CSI volumes have.
impl Paths {
    /// Everything CSI keeps for the node.
    pub fn csi(&self) -> PathBuf {
        self.plugins().join("kubernetes.io/csi")
    }

    /// The directory of one CSI volume in a pod: it holds vol_data.json and the target.
    pub fn csi_pod_volume(&self, pod: &PodUid, inner: &SpecName) -> PathBuf {
        self.pod_volumes(pod).join("kubernetes.io~csi").join(escape(inner.as_str()))
    }

    /// Where a driver publishes a file-system volume. The driver makes it, we make only its parent.
    pub fn csi_target(&self, pod: &PodUid, inner: &SpecName) -> PathBuf {
        self.csi_pod_volume(pod, inner).join("mount")
    }

    /// Where the staging directories of one driver are.
    pub fn csi_driver(&self, driver: &DriverName) -> PathBuf {
        self.csi().join(driver.as_str())
    }

    /// The directory of one staged file-system volume: it holds vol_data.json and the global mount.
    pub fn csi_staging(&self, driver: &DriverName, handle: &VolumeHandle) -> PathBuf {
        self.csi_driver(driver).join(handle.hashed())
    }

    /// Where a driver stages a file-system volume.
    pub fn csi_global_mount(&self, driver: &DriverName, handle: &VolumeHandle) -> PathBuf {
        self.csi_staging(driver, handle).join("globalmount")
    }

    /// Everything CSI keeps for block volumes.
    pub fn csi_block(&self) -> PathBuf {
        self.csi().join("volumeDevices")
    }

    /// Everything the node keeps for one block volume but its staging and publish directories.
    pub fn csi_block_volume(&self, inner: &SpecName) -> PathBuf {
        self.csi_block().join(escape(inner.as_str()))
    }

    /// Where the metadata of one block volume is.
    pub fn csi_block_data(&self, inner: &SpecName) -> PathBuf {
        self.csi_block_volume(inner).join("data")
    }

    /// Where a block volume's device is bound once per pod (the "global map path").
    pub fn csi_block_map(&self, inner: &SpecName) -> PathBuf {
        self.csi_block_volume(inner).join("dev")
    }

    /// Where a driver stages a block volume.
    pub fn csi_block_staging(&self, inner: &SpecName) -> PathBuf {
        self.csi_block().join("staging").join(escape(inner.as_str()))
    }

    /// Where a driver publishes a block volume, once per pod.
    pub fn csi_block_publish_dir(&self, inner: &SpecName) -> PathBuf {
        self.csi_block().join("publish").join(escape(inner.as_str()))
    }

    /// Where a driver publishes a block volume for one pod. The driver makes it.
    pub fn csi_block_target(&self, inner: &SpecName, pod: &PodUid) -> PathBuf {
        self.csi_block_publish_dir(inner).join(pod.as_str())
    }
}

/// What only local volumes have.
impl Paths {
    /// Where a local block device that is used as a file system is mounted for the node.
    pub fn local_mount(&self, inner: &SpecName) -> PathBuf {
        self.plugins().join("kubernetes.io/local-volume/mounts").join(inner.as_str())
    }

    /// The global map path of a local block volume.
    pub fn local_block_map(&self, inner: &SpecName) -> PathBuf {
        self.plugins().join("kubernetes.io~local-volume/volumeDevices").join(inner.as_str())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_layout_is_the_kubelets() {
        let paths = Paths::new("/k");
        let (pod, inner) = (PodUid::new("u1"), SpecName::new("pv1"));
        let (driver, handle) = (DriverName::new("d.example"), VolumeHandle::new("h1"));
        let plugin = PluginName::new("kubernetes.io/csi");
        let all = [
            paths.plugin_container(&plugin),
            paths.registrations(),
            paths.pod_volume(&pod, &plugin, &inner),
            paths.pod_plugin(&pod, &"kubernetes.io/empty-dir".into(), "wrapped_cm"),
            paths.pod_device(&pod, &plugin, &inner),
            paths.subpath(&pod, &inner, &"main".into(), 2),
            paths.pod_container(&pod, &"main".into()),
            paths.etc_hosts(&pod),
            paths.csi_target(&pod, &inner),
            paths.csi_global_mount(&driver, &handle),
            paths.csi_block_data(&inner),
            paths.csi_block_map(&inner),
            paths.csi_block_staging(&inner),
            paths.csi_block_target(&inner, &pod),
            paths.local_mount(&inner),
            paths.local_block_map(&inner),
        ];
        let text: String = all.iter().map(|path| format!("{}\n", path.display())).collect();
        expect![[r#"
            /k/plugin-containers/kubernetes.io~csi.json
            /k/plugins_registry
            /k/pods/u1/volumes/kubernetes.io~csi/pv1
            /k/pods/u1/plugins/kubernetes.io~empty-dir/wrapped_cm
            /k/pods/u1/volumeDevices/kubernetes.io~csi/pv1
            /k/pods/u1/volume-subpaths/pv1/main/2
            /k/pods/u1/containers/main
            /k/pods/u1/etc-hosts
            /k/pods/u1/volumes/kubernetes.io~csi/pv1/mount
            /k/plugins/kubernetes.io/csi/d.example/33112ee14ee469c3eb52fe90322ec81dd404a0093d565a6d71ce77cbc8124e3b/globalmount
            /k/plugins/kubernetes.io/csi/volumeDevices/pv1/data
            /k/plugins/kubernetes.io/csi/volumeDevices/pv1/dev
            /k/plugins/kubernetes.io/csi/volumeDevices/staging/pv1
            /k/plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u1
            /k/plugins/kubernetes.io/local-volume/mounts/pv1
            /k/plugins/kubernetes.io~local-volume/volumeDevices/pv1
        "#]]
        .assert_eq(&text);
    }
}
