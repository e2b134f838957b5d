//! Expansion and sizes of volumes: calls of the controller and of the node, and the kernel's sizes.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::panic::Location;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};

use super::NodeCalls;
use crate::bed::StepError;
use crate::bed::node_calls::in_time;
use crate::bed::pattern;
use crate::cx::Answer;
use crate::failure::Result;

/// A file system by the kernel's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    pub bytes: u64,
    pub free: u64,
    /// For those without rights.
    pub available: u64,
    /// Zero where there is no limit.
    pub inodes: u64,
    pub free_inodes: u64,
}

impl NodeCalls {
    /// Has the controller grow the volume.
    #[track_caller]
    pub fn grow(&self, bytes: u64) -> impl Future<Output = Result<Answer>> + use<> {
        self.cx().call("ControllerExpandVolume", self.grow_request(bytes))
    }

    /// Has the node grow the volume at a target.
    #[track_caller]
    pub fn grow_on_node(&self, target: &str, bytes: u64) -> impl Future<Output = Result<Answer>> + use<> {
        self.cx().call("NodeExpandVolume", self.grow_on_node_request(target, bytes))
    }

    /// The ControllerExpandVolume request for the volume.
    pub fn grow_request(&self, bytes: u64) -> Value {
        let fields = self.fields.borrow();
        json!({
            "volumeId": fields.handle,
            "capacityRange": { "requiredBytes": bytes.to_string() },
            "volumeCapability": fields.capability,
        })
    }

    /// The NodeExpandVolume request for the volume at a target.
    pub fn grow_on_node_request(&self, target: &str, bytes: u64) -> Value {
        let mut request = self.grow_request(bytes);
        request["volumePath"] = json!(self.target(target));
        request["stagingTargetPath"] = self.publish_request(target)["stagingTargetPath"].clone();
        request
    }

    /// Asks for the statistics of a path of the volume.
    #[track_caller]
    pub fn stats(&self, path: &Path) -> impl Future<Output = Result<Answer>> + use<> {
        let staging = self.publish_request("")["stagingTargetPath"].clone();
        let request = json!({ "volumeId": self.handle(), "volumePath": path, "stagingTargetPath": staging });
        self.cx().call("NodeGetVolumeStats", request)
    }

    /// The size of the device at a path.
    #[track_caller]
    pub fn device_size(&self, path: &Path) -> impl Future<Output = Result<u64>> {
        let doing = self.begin("measuring the device", path, Location::caller());
        let path = path.to_owned();
        async move {
            let size = move || File::open(path)?.seek(SeekFrom::End(0));
            let measured = in_time("measuring", size).await;
            doing.done(measured.and_then(|size| size.map_err(|error| unreadable(&error))))
        }
    }

    /// The file system at a path, when all that was written is on its disk.
    #[track_caller]
    pub fn file_system(&self, path: &Path) -> impl Future<Output = Result<FileSystem>> {
        let doing = self.begin("measuring the file system", path, Location::caller());
        let path = path.to_owned();
        async move {
            let measured = in_time("measuring", move || measure(&path)).await;
            doing.done(measured.and_then(|found| found.map_err(|error| unreadable(&error))))
        }
    }

    /// Whether the volume at a path has a pattern that was written to another volume, of which it is a copy. Of a
    /// device those blocks count that the other had.
    #[track_caller]
    pub fn has_copied(
        &self,
        at: &Path,
        source: &NodeCalls,
        name: &str,
    ) -> impl Future<Output = Result<bool>> {
        let (path, seed, end) = (self.file(at, name), source.seed_of(name), source.written.get());
        let doing = self.begin("reading", &path, Location::caller());
        async move {
            let found = move || pattern::is_there_within(&path, seed, end).unwrap_or(false);
            doing.done(in_time("reading", found).await)
        }
    }
}

fn measure(path: &Path) -> io::Result<FileSystem> {
    nix::unistd::syncfs(File::open(path)?)?;
    let found = statvfs(path)?;
    let unit = found.fragment_size();
    Ok(FileSystem {
        bytes: found.blocks() * unit,
        free: found.blocks_free() * unit,
        available: found.blocks_available() * unit,
        inodes: found.files(),
        free_inodes: found.files_free(),
    })
}

fn unreadable(error: &io::Error) -> StepError {
    StepError::Broken(vec!["The volume cannot be measured.".to_owned(), error.to_string()])
}
