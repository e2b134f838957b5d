//! The map of a published block device into a pod: a bind mount below the volume's global map, a symlink in the
//! pod's directory, and a loop device that keeps the device open, so that its number is not given to another
//! device. Touches nothing outside of those two directories.
//!
//! It is built in the order bind, link, lock and removed in the opposite order, so that no link or lock ever
//! refers to a bind that is gone.

use std::path::{Path, PathBuf};

use api::names::{PodUid, SpecName};
use host::{FileKind, Host, HostError, Removal};

/// The paths of one pod's map of one block volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockMap {
    /// The volume's global map.
    pub(crate) global: PathBuf,
    /// The directory of the pod's symlinks.
    pub(crate) links: PathBuf,
    /// The name of the symlink.
    pub(crate) inner: SpecName,
    /// The pod; its UID names the file that the device is bound over.
    pub(crate) pod: PodUid,
}

impl BlockMap {
    /// The file that the device is bound over.
    pub(crate) fn bind(&self) -> PathBuf {
        self.global.join(self.pod.as_str())
    }

    /// The pod's symlink to the device.
    pub(crate) fn link(&self) -> PathBuf {
        self.links.join(self.inner.as_str())
    }

    /// Creates the empty file that the device will be bound over, before the device is published. If the
    /// manager ends before the answer, recovery finds the pod by this file; nothing else on disk names it then.
    pub(crate) async fn announce(&self, host: &dyn Host) -> Result<(), HostError> {
        host.make_dir_all(&self.global, 0o750).await?;
        match host.create_file(&self.bind(), 0o750).await {
            Err(error) if !error.is_exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes that file when the device is no longer published. A missing file is success.
    pub(crate) async fn forget(&self, host: &dyn Host) -> Result<(), HostError> {
        match host.remove_file(&self.bind()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Does the same after a publish that certainly did nothing, and removes the global map unless other pods
    /// are in it.
    pub(crate) async fn take_back(&self, host: &dyn Host) -> Result<(), HostError> {
        self.forget(host).await?;
        match host.remove_dir(&self.global).await {
            Err(error) if !error.is_not_found() && !error.is_not_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates bind, link and lock over the leftovers of any earlier attempt.
    pub(crate) async fn build(&self, host: &dyn Host, device: &Path) -> Result<(), HostError> {
        host.make_dir_all(&self.global, 0o750).await?;
        host::bind::device_node(host, device, &self.bind()).await?;
        host.make_dir_all(&self.links, 0o750).await?;
        self.relink(host, device).await?;
        host.lock_device(&self.bind()).await?;
        Ok(())
    }

    /// Creates the symlink unless it leads to this device already; after a reboot it may lead to another one.
    async fn relink(&self, host: &dyn Host, device: &Path) -> Result<(), HostError> {
        let link = self.link();
        match host.read_link(&link).await {
            Ok(target) if target == device => return Ok(()),
            Ok(_) => host.remove_file(&link).await?,
            Err(error) if error.is_not_found() => {}
            Err(error) => match host.symlink_metadata(&link).await {
                // Another file in the symlink's place is removed, a directory is not. A symlink that cannot be
                // read stays: it may be in use.
                Ok(there) if there.kind != FileKind::Symlink => host.remove_file(&link).await?,
                _ => return Err(error),
            },
        }
        host.symlink(device, &link).await
    }

    /// Removes lock, link and bind, but not the bind's file. Missing parts are success, so it can be repeated.
    pub(crate) async fn demolish(&self, host: &dyn Host) -> Result<(), HostError> {
        self.unlock(host).await?;
        self.unlink(host).await?;
        host::bind::release_device_node(host, &self.bind()).await
    }

    async fn unlock(&self, host: &dyn Host) -> Result<(), HostError> {
        match host.find_lock(&self.bind()).await? {
            Some(device) => host.unlock_device(&device).await,
            None => Ok(()),
        }
    }

    /// Removes the symlink. Another file of that name was not made here and stays.
    async fn unlink(&self, host: &dyn Host) -> Result<(), HostError> {
        let link = self.link();
        match host.symlink_metadata(&link).await {
            Ok(there) if there.kind == FileKind::Symlink => host.remove_file(&link).await,
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The bind mounts of pods below a global map.
pub(crate) async fn references(host: &dyn Host, global: &Path) -> Result<Vec<PathBuf>, HostError> {
    host::bind::device_nodes_in(host, global).await
}

/// Removes an unused global map with the files in it. Fails at a mount: that is a pod's device.
pub(crate) async fn remove_global(host: &dyn Host, global: &Path) -> Result<(), HostError> {
    host.remove_tree(global, Removal::OneFilesystem).await
}

#[cfg(test)]
mod tests {
    use host::fake::{FakeHost, FakeKernel, Order, Rule};

    use super::*;

    /// The map of the pod `u` to the volume `pv`; none of its directories exist.
    fn nothing_yet() -> (FakeHost, BlockMap) {
        let (global, links) = (PathBuf::from("/global"), PathBuf::from("/links"));
        let bridges = BlockMap { global, links, inner: SpecName::new("pv"), pod: PodUid::new("u") };
        (FakeHost::new(FakeKernel::new()), bridges)
    }

    /// The next time, this does not work.
    fn fail_once(host: &FakeHost, method: &'static str) {
        host.faults().add(Rule::new(Order::Fail(host::errno::EIO)).on(method).times(1));
    }

    #[tokio::test]
    async fn a_pods_name_is_written_down_once_or_not_at_all() {
        let (host, bridges) = nothing_yet();
        fail_once(&host, "create_file");
        bridges.announce(&host).await.unwrap_err();
        for _ in 0..2 {
            bridges.announce(&host).await.unwrap();
            assert!(host.symlink_metadata(&bridges.bind()).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_pods_name_that_cannot_be_taken_away_is_not_forgotten() {
        let (host, bridges) = nothing_yet();
        bridges.announce(&host).await.unwrap();
        fail_once(&host, "remove_file");
        bridges.forget(&host).await.unwrap_err();
        for _ in 0..2 {
            bridges.forget(&host).await.unwrap();
            assert!(host.symlink_metadata(&bridges.bind()).await.is_err());
        }
        assert!(host.symlink_metadata(&bridges.global).await.is_ok(), "the driver may have more in it");
    }

    #[tokio::test]
    async fn the_last_pod_takes_the_directory_of_a_volume_that_was_never_published() {
        let (host, bridges) = nothing_yet();
        let another = BlockMap { pod: PodUid::new("another"), ..bridges.clone() };
        bridges.announce(&host).await.unwrap();
        another.announce(&host).await.unwrap();
        bridges.take_back(&host).await.unwrap();
        assert!(host.symlink_metadata(&another.bind()).await.is_ok());
        fail_once(&host, "remove_dir");
        another.take_back(&host).await.unwrap_err();
        for _ in 0..2 {
            another.take_back(&host).await.unwrap();
            assert!(host.symlink_metadata(&bridges.global).await.is_err());
        }
    }

    #[tokio::test]
    async fn bridges_are_built_where_nothing_is_left_of_them() {
        let (host, bridges) = nothing_yet();
        let disk = Path::new("/dev/vda");
        host.kernel().add_disk("vda", 1 << 20).unwrap();
        bridges.build(&host, disk).await.unwrap();
        assert_eq!(references(&host, &bridges.global).await.unwrap(), [bridges.bind()]);
        assert_eq!(host.read_link(&bridges.link()).await.unwrap(), disk);
    }

    #[tokio::test]
    async fn a_link_that_cannot_be_looked_at_has_not_gone() {
        let (host, bridges) = nothing_yet();
        host.make_dir_all(&bridges.links, 0o750).await.unwrap();
        bridges.relink(&host, Path::new("/dev/vda")).await.unwrap();
        fail_once(&host, "symlink_metadata");
        bridges.unlink(&host).await.unwrap_err();
        for _ in 0..2 {
            bridges.unlink(&host).await.unwrap();
            assert!(host.symlink_metadata(&bridges.link()).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_file_in_the_place_of_the_link_stays_when_the_rest_is_taken_away() {
        let (host, bridges) = nothing_yet();
        host.kernel().make_dir_all(&bridges.links, 0o750).unwrap();
        host.kernel().write_file(&bridges.link(), b"precious", 0o600).unwrap();
        bridges.announce(&host).await.unwrap();
        bridges.demolish(&host).await.unwrap();
        assert_eq!(host.read_file(&bridges.link()).await.unwrap(), b"precious");
    }

    #[tokio::test]
    async fn a_link_that_cannot_be_read_stays_and_anything_else_in_its_place_goes() {
        let device = Path::new("/dev/vda");
        for (is_link, stays) in [(true, true), (false, false)] {
            let (host, bridges) = nothing_yet();
            let kernel = host.kernel();
            kernel.make_dir_all(&bridges.links, 0o750).unwrap();
            match is_link {
                true => kernel.symlink(Path::new("/dev/old"), &bridges.link()).unwrap(),
                false => kernel.write_file(&bridges.link(), b"", 0o600).unwrap(),
            }
            host.faults().add(Rule::new(Order::Fail(5)).on("read_link").times(u32::from(is_link)));
            assert_eq!(bridges.relink(&host, device).await.is_err(), stays);
            let now = host.read_link(&bridges.link()).await.unwrap();
            assert_eq!(now, Path::new(if stays { "/dev/old" } else { "/dev/vda" }));
        }
    }

    #[tokio::test]
    async fn a_link_that_leads_elsewhere_leads_to_the_device_from_now_on() {
        let (host, bridges) = nothing_yet();
        host.kernel().make_dir_all(&bridges.links, 0o750).unwrap();
        for device in ["/dev/vda", "/dev/vdb", "/dev/vdb"] {
            bridges.relink(&host, Path::new(device)).await.unwrap();
            assert_eq!(host.read_link(&bridges.link()).await.unwrap(), Path::new(device));
        }
        fail_once(&host, "remove_file");
        let again = bridges.relink(&host, Path::new("/dev/vdb")).await;
        assert!(again.is_ok(), "one that leads there already is not touched");
    }
}
