//! The bridges from a published block device to a pod: a bind mount below the volume's global map path, a
//! symbolic link in the pod's directory, and a loop device that keeps the device's number from being given
//! away. Touches the host below those two directories only.
//!
//! On the way in: bind, link, lock. On the way out the other way round, so that nothing is ever reachable
//! through a bridge whose foundation is gone.

use std::path::{Path, PathBuf};

use api::names::{PodUid, SpecName};
use host::{FileKind, Host, HostError, Removal};

/// Where one pod's bridges to one block volume are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockMap {
    /// The volume's global map path.
    pub(crate) global: PathBuf,
    /// The directory of the pod's links.
    pub(crate) links: PathBuf,
    /// The link's name in it.
    pub(crate) inner: SpecName,
    /// The pod, which names the bind's file.
    pub(crate) pod: PodUid,
}

impl BlockMap {
    /// The file the device is bound over.
    pub(crate) fn bind(&self) -> PathBuf {
        self.global.join(self.pod.as_str())
    }

    /// The pod's link.
    pub(crate) fn link(&self) -> PathBuf {
        self.links.join(self.inner.as_str())
    }

    /// Writes down for which pod a device is about to be asked for: an empty file where it will be bound. If
    /// we end before the answer nothing else on disk says so, and whoever comes after us finds the pod here.
    pub(crate) async fn announce(&self, host: &dyn Host) -> Result<(), HostError> {
        host.make_dir_all(&self.global, 0o750).await?;
        match host.create_file(&self.bind(), 0o750).await {
            Err(error) if !error.is_exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the pod's name away again, once no device of it is published. Missing: success.
    pub(crate) async fn forget(&self, host: &dyn Host) -> Result<(), HostError> {
        match host.remove_file(&self.bind()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// The same, where nothing was published at all: the directory goes as well, unless other pods are in it.
    pub(crate) async fn take_back(&self, host: &dyn Host) -> Result<(), HostError> {
        self.forget(host).await?;
        match host.remove_dir(&self.global).await {
            Err(error) if !error.is_not_found() && !error.is_not_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes all three, whatever an earlier attempt has left of them.
    pub(crate) async fn build(&self, host: &dyn Host, device: &Path) -> Result<(), HostError> {
        host.make_dir_all(&self.global, 0o750).await?;
        host::bind::device_node(host, device, &self.bind()).await?;
        host.make_dir_all(&self.links, 0o750).await?;
        self.relink(host, device).await?;
        host.lock_device(&self.bind()).await?;
        Ok(())
    }

    /// A link that leads to this device already is left alone; after a reboot it may lead elsewhere.
    async fn relink(&self, host: &dyn Host, device: &Path) -> Result<(), HostError> {
        let link = self.link();
        match host.read_link(&link).await {
            Ok(target) if target == device => return Ok(()),
            Ok(_) => host.remove_file(&link).await?,
            Err(error) if error.is_not_found() => {}
            Err(error) => match host.symlink_metadata(&link).await {
                // Something else in the link's place goes, as long as it is no directory. A link that could
                // not be read stays: it may be in use.
                Ok(there) if there.kind != FileKind::Symlink => host.remove_file(&link).await?,
                _ => return Err(error),
            },
        }
        host.symlink(device, &link).await
    }

    /// Takes all three away, and leaves the pod's name. What is missing is passed over, so it can be repeated.
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

    /// Removes the link, and only a link: a file of that name is not ours.
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

/// The pods whose devices are still bound below a global map path.
pub(crate) async fn references(host: &dyn Host, global: &Path) -> Result<Vec<PathBuf>, HostError> {
    host::bind::device_nodes_in(host, global).await
}

/// Removes an unused global map path with the files left in it. It stops at a mount: what is mounted there
/// is somebody's device.
pub(crate) async fn remove_global(host: &dyn Host, global: &Path) -> Result<(), HostError> {
    host.remove_tree(global, Removal::OneFilesystem).await
}

#[cfg(test)]
mod tests {
    use host::fake::{FakeHost, FakeKernel, Order, Rule};

    use super::*;

    /// The bridges of the pod `u` to the volume `pv`, on a kernel that has none of their directories.
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
