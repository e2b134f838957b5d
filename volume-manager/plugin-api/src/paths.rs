//! All paths that the manager uses below its root directory, one function each.
//!
//! They are the kubelet's layout on disk, which drivers and tools rely on: a change here changes what they see.
//! Nothing here touches a file.

use std::path::{Path, PathBuf};

use api::names::{ContainerName, DriverName, PluginName, PodUid, SpecName, VolumeHandle, escape};

/// The layout below one root directory, `/var/lib/kubelet` on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// The layout below `root`, which must be in canonical form.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root directory, a shared mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of all pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directory of plugins' files that belong to the node and not to a pod.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// The directory of drivers' registration sockets.
    pub fn registrations(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// The program of a FlexVolume driver.
    pub fn flex_volume_driver(&self, plugin: &PluginName) -> PathBuf {
        let name = plugin.as_str().rsplit('/').next().unwrap_or_default();
        self.root.join("volumeplugins").join(plugin.escaped()).join(name)
    }

    /// The file that names the container in which a plugin's mount tools run.
    pub fn plugin_container(&self, plugin: &PluginName) -> PathBuf {
        self.root.join("plugin-containers").join(format!("{}.json", plugin.escaped()))
    }

    /// The directory of a pod.
    pub fn pod(&self, pod: &PodUid) -> PathBuf {
        self.pods().join(pod.as_str())
    }

    /// The filesystem volumes of a pod, one directory per plugin.
    pub fn pod_volumes(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volumes")
    }

    /// The block volumes of a pod, one directory per plugin.
    pub fn pod_devices(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volumeDevices")
    }

    /// Plugins' files about a pod.
    pub fn pod_plugins(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("plugins")
    }

    /// Plugins' files about one volume of a pod, such as the ready marker of an emptyDir.
    pub fn pod_plugin(&self, pod: &PodUid, plugin: &PluginName, volume: &str) -> PathBuf {
        self.pod_plugins(pod).join(plugin.escaped()).join(volume)
    }

    /// The directory of one file-system volume of a pod.
    pub fn pod_volume(&self, pod: &PodUid, plugin: &PluginName, inner: &SpecName) -> PathBuf {
        self.pod_volumes(pod).join(plugin.escaped()).join(inner.as_str())
    }

    /// The directory of a pod's symlinks to its block volumes of one plugin (the "pod device map path").
    pub fn pod_device_dir(&self, pod: &PodUid, plugin: &PluginName) -> PathBuf {
        self.pod_devices(pod).join(plugin.escaped())
    }

    /// The symlink to one block volume of a pod.
    pub fn pod_device(&self, pod: &PodUid, plugin: &PluginName, inner: &SpecName) -> PathBuf {
        self.pod_device_dir(pod, plugin).join(inner.as_str())
    }

    /// The sub-path binds of a pod.
    pub fn pod_subpaths(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volume-subpaths")
    }

    /// The sub-path binds of one volume of a pod, by container and index.
    pub fn volume_subpaths(&self, pod: &PodUid, inner: &SpecName) -> PathBuf {
        self.pod_subpaths(pod).join(inner.as_str())
    }

    /// The bind of one sub-path; `index` counts the container's volume mounts.
    pub fn subpath(
        &self,
        pod: &PodUid,
        inner: &SpecName,
        container: &ContainerName,
        index: usize,
    ) -> PathBuf {
        self.volume_subpaths(pod, inner).join(container.as_str()).join(index.to_string())
    }

    /// The directory of one container of a pod.
    pub fn pod_container(&self, pod: &PodUid, container: &ContainerName) -> PathBuf {
        self.pod(pod).join("containers").join(container.as_str())
    }

    /// The hosts file of a pod.
    pub fn etc_hosts(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("etc-hosts")
    }
}

/// The path without the spare room that joining leaves: each volume keeps its paths as long as it is there.
fn exact(mut path: PathBuf) -> PathBuf {
    path.shrink_to_fit();
    path
}

/// Paths of CSI volumes.
impl Paths {
    /// The CSI plugin's directory.
    pub fn csi(&self) -> PathBuf {
        self.plugins().join("kubernetes.io/csi")
    }

    /// The directory of one CSI volume in a pod, with its record and its target.
    pub fn csi_pod_volume(&self, pod: &PodUid, inner: &SpecName) -> PathBuf {
        self.pod_volumes(pod).join("kubernetes.io~csi").join(escape(inner.as_str()))
    }

    /// The target of a filesystem volume. The driver creates it; its parent is created by the node.
    pub fn csi_target(&self, pod: &PodUid, inner: &SpecName) -> PathBuf {
        exact(self.csi_pod_volume(pod, inner).join("mount"))
    }

    /// The directory of a driver's stages.
    pub fn csi_driver(&self, driver: &DriverName) -> PathBuf {
        self.csi().join(driver.as_str())
    }

    /// The directory of one staged filesystem volume, with its record and its staging path.
    pub fn csi_staging(&self, driver: &DriverName, handle: &VolumeHandle) -> PathBuf {
        self.csi_driver(driver).join(handle.hashed())
    }

    /// The staging path of a filesystem volume.
    pub fn csi_global_mount(&self, driver: &DriverName, handle: &VolumeHandle) -> PathBuf {
        exact(self.csi_staging(driver, handle).join("globalmount"))
    }

    /// The directory of all CSI block volumes.
    pub fn csi_block(&self) -> PathBuf {
        self.csi().join("volumeDevices")
    }

    /// The directory of one block volume, except for its staging and publish directories.
    pub fn csi_block_volume(&self, inner: &SpecName) -> PathBuf {
        self.csi_block().join(escape(inner.as_str()))
    }

    /// The directory of a block volume's record.
    pub fn csi_block_data(&self, inner: &SpecName) -> PathBuf {
        self.csi_block_volume(inner).join("data")
    }

    /// The global map of a block volume: its device is bound there once per pod.
    pub fn csi_block_map(&self, inner: &SpecName) -> PathBuf {
        self.csi_block_volume(inner).join("dev")
    }

    /// The staging path of a block volume.
    pub fn csi_block_staging(&self, inner: &SpecName) -> PathBuf {
        self.csi_block().join("staging").join(escape(inner.as_str()))
    }

    /// The directory of a block volume's targets, one per pod.
    pub fn csi_block_publish_dir(&self, inner: &SpecName) -> PathBuf {
        self.csi_block().join("publish").join(escape(inner.as_str()))
    }

    /// The target of a block volume for one pod. The driver creates it.
    pub fn csi_block_target(&self, inner: &SpecName, pod: &PodUid) -> PathBuf {
        self.csi_block_publish_dir(inner).join(pod.as_str())
    }
}

/// Paths of local volumes.
impl Paths {
    /// The mount of a local block device with a filesystem, for the whole node.
    pub fn local_mount(&self, inner: &SpecName) -> PathBuf {
        self.plugins().join("kubernetes.io/local-volume/mounts").join(inner.as_str())
    }

    /// The global map of a local block volume.
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
