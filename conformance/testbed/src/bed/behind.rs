//! Behind the node's and the driver's back: requests to the driver, the node's directories, and files that disappear
//! without a call.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use api::pod::InlineCsi;
use api::{CsiDriver, VolumeSource};
use contracts::event::Event;
use nix::errno::Errno;
use serde_json::Value;

use super::{Bed, Result, StepError};
use crate::call::Method;

/// The promise that a published volume is at its target.
const AT_THE_TARGET: &str = "DRV-055";

impl Bed {
    /// A part of the last request of a method, as text; empty if there is no such part.
    pub(crate) fn asked(&self, method: Method, part: &str) -> Result<String> {
        let trace = self.journal.trace();
        let mut requests = trace.iter().rev().filter_map(|line| match &line.event {
            Event::RpcStart(start) if start.method == method.name() => Some(&start.req),
            _ => None,
        });
        let never = || StepError::Broken(vec![format!("No {} was called.", method.name())]);
        let request = requests.next().ok_or_else(never)?;
        Ok(match request.pointer(part) {
            None => String::new(),
            Some(Value::String(text)) => self.journal.symbols().text(text),
            Some(other) => other.to_string(),
        })
    }

    /// The path of a pod's volume on the node.
    pub(crate) fn place(&self, volume: &str, pod: &str) -> Result<PathBuf> {
        // A case asks for this path in order to change something there.
        self.journal.touched_by_hand();
        let symbol = format!("<{pod}>/{volume}");
        let below = harness::Layout::standard().root().join("pods").join(format!("uid-{pod}"));
        let children =
            |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let plugins = ["volumes", "volumeDevices"].into_iter().flat_map(|kind| children(below.join(kind)));
        let found = plugins.flat_map(children).find(|path| self.journal.symbols().path(path) == symbol);
        found.ok_or_else(|| {
            StepError::Broken(vec![format!("The node keeps no `{volume}` for the pod `{pod}`.")])
        })
    }

    /// Changes the object of the driver.
    pub(crate) fn change_driver(&self, change: impl FnOnce(&mut CsiDriver)) -> Result {
        let changed = self.api_server.change("", self.driver_name(), change);
        changed.map(drop).map_err(|error| StepError::ours(&error))
    }

    /// A volume of the driver's that lives as long as its pod.
    pub(crate) fn inline_csi(&self, pod: &str, volume: &str, secret: Option<&str>) -> Result<VolumeSource> {
        self.journal.symbols().name_inline(volume, &format!("uid-{pod}"));
        // By this a driver learns that a volume is one of these.
        self.change_driver(|driver| driver.pod_info = true)?;
        let driver = self.driver_name().into();
        let secret = secret.map(str::to_owned);
        let settings = &self.manifest().volume;
        let (attributes, read_only) = (settings.inline_attributes.clone(), settings.inline_read_only);
        Ok(VolumeSource::Csi(InlineCsi { driver, secret, attributes, read_only, ..InlineCsi::default() }))
    }

    /// Whether the driver has put a device at its target for reading only: a device that cannot be written, or a
    /// read-only bind of one that others may write. What keeps the container from writing is its device rule.
    pub(crate) fn target_is_read_only(&self, volume: &str, pod: &str) -> Result<bool> {
        let target = self.journal.symbols().block_target(volume, pod);
        let target = target.ok_or_else(|| StepError::Ours(vec![format!("`{volume}` has no target")]))?;
        let there = fs::metadata(&target).map_err(|error| StepError::ours(&error))?;
        let bound = nix::sys::statvfs::statvfs(&target).map_err(|error| StepError::ours(&error))?;
        if bound.flags().contains(nix::sys::statvfs::FsFlags::ST_RDONLY) {
            return Ok(true);
        }
        let (major, minor) = (nix::sys::stat::major(there.rdev()), nix::sys::stat::minor(there.rdev()));
        let said = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
        Ok(said.map_err(|error| StepError::ours(&error))?.trim() == "1")
    }

    /// Removes the device that the driver has put at its target: a bind, or a device node of its own.
    pub(crate) fn lose_target(&self, volume: &str, pod: &str) -> Result {
        self.journal.touched_by_hand();
        let target = self.journal.symbols().block_target(volume, pod);
        let target = target.ok_or_else(|| StepError::Ours(vec![format!("`{volume}` has no target")]))?;
        if !fs::metadata(&target).is_ok_and(|there| there.file_type().is_block_device()) {
            let cause = "no device is at the target of a block volume".to_owned();
            return Err(StepError::Promise {
                contract: AT_THE_TARGET,
                method: "NodePublishVolume".to_owned(),
                cause,
            });
        }
        match nix::mount::umount(&target) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(error) => return Err(StepError::ours(&error)),
        }
        fs::remove_file(&target).map_err(|error| StepError::ours(&error))
    }
}
