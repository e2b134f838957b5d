//! The host whose mounts run in a container. Mounts and disk tools go through the container, everything else
//! through the node's own host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::{ContainerError, ContainerRef, Containers, Output};
use crate::blocking::blocking;
use crate::disk_tools::{self, Tool};
use crate::door::{Bind, Host, OpenedBeneath, Propagation, Removal};
use crate::effect::Effect;
use crate::error::{HostError, Result, ToolError};
use crate::file::{DirEntry, FsStats, Metadata, Usage};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};
use crate::mount_command::MountCommand;
use crate::mount_table::{MountEntry, MountTable};
use crate::options::{MountOptions, MountSpec};
use crate::ownership::{OwnershipChange, WalkProgress};

/// Mounts, unmounts and disk tools in a container; the rest on the node.
#[derive(Debug, Clone)]
pub struct ExecHost {
    node: Arc<dyn Host>,
    containers: Arc<dyn Containers>,
    container: ContainerRef,
}

impl ExecHost {
    /// The container must exist.
    pub fn new(node: Arc<dyn Host>, containers: Arc<dyn Containers>, container: ContainerRef) -> Self {
        Self { node, containers, container }
    }

    fn name(&self) -> String {
        let ContainerRef { pod_namespace, pod_name, container_name, .. } = &self.container;
        format!("{pod_namespace}/{pod_name}/{container_name}")
    }

    async fn run(&self, program: &str, arguments: &[String], shown: &str) -> Result<Output> {
        let ran = self.containers.run(&self.container, program, arguments).await;
        ran.map_err(|source| {
            let (program, arguments, container) = (program.to_owned(), shown.to_owned(), self.name());
            ContainerError::Run { program, arguments, container, source }.into()
        })
    }

    /// Runs a mount or unmount; a failing exit is an error.
    async fn must(&self, what: &str, command: &MountCommand) -> Result<()> {
        let output = self.run(&command.program, &command.arguments, &command.shown).await?;
        if output.code == Some(0) {
            return Ok(());
        }
        Err(failure(what, &command.program, &command.shown, output))
    }

    async fn tool(&self, tool: &Tool) -> Result<Output> {
        self.run(&tool.program, &tool.arguments, &tool.arguments.join(" ")).await
    }

    /// An error unless the node sees a mount at `target` other than the one before.
    async fn check_arrived(&self, target: &Path, before: Option<u64>) -> Result<()> {
        if self.mount_id_at(target).await.is_some_and(|now| Some(now) != before) {
            return Ok(());
        }
        Err(self.not_visible("mounted", target))
    }

    fn not_visible(&self, done: &'static str, target: &Path) -> HostError {
        ContainerError::NotVisible { container: self.name(), done, target: target.to_owned() }.into()
    }

    /// The id of the mount whose mount point is `target`.
    async fn mount_id_at(&self, target: &Path) -> Option<u64> {
        if !self.node.is_likely_mount_point(target).await.ok()? {
            return None;
        }
        self.node.mount_of(target).await.ok().map(|entry| entry.id)
    }

    async fn run_umount(&self, target: &Path, force: bool) -> Result<()> {
        let before = self.mount_id_at(target).await;
        let command = MountCommand::unmount(target, force);
        match self.must("umount", &command).await {
            // Unmounting a directory that is no mount is success, as with every host.
            Err(HostError::Tool(error)) if error.output.contains("not mounted") => {
                // A forced unmount follows one that was given up. That one has unmounted the target meanwhile,
                // unannounced, so the effect is announced below.
                if !force {
                    return Ok(());
                }
            }
            other => other?,
        }
        if before.is_some() && self.mount_id_at(target).await == before {
            return Err(self.not_visible("unmounted", target));
        }
        announce(target, |target| Effect::new("umount", target).announce()).await;
        Ok(())
    }
}

/// Announces from a blocking thread: a subscriber may wait inside the event.
async fn announce(path: &Path, emit: impl FnOnce(&Path) + Send + 'static) {
    let path = path.to_owned();
    blocking(move || emit(&path)).await;
}

fn failure(what: &str, program: &str, shown: &str, output: Output) -> HostError {
    let status = output.code.map_or_else(|| "signal".to_owned(), |code| format!("exit status {code}"));
    ToolError {
        what: what.to_owned(),
        status,
        code: output.code,
        program: program.to_owned(),
        arguments: shown.to_owned(),
        output: output.text,
    }
    .into()
}

#[async_trait]
impl Host for ExecHost {
    async fn mount(&self, spec: &MountSpec) -> Result<()> {
        let before = self.mount_id_at(&spec.target).await;
        self.must("mount", &MountCommand::mount(spec)).await?;
        self.check_arrived(&spec.target, before).await?;
        let (source, fs_type) = (PathBuf::from(&spec.source), spec.fs_type.clone());
        let options = spec.options.masked_joined();
        announce(&spec.target, move |target| {
            let effect = Effect::new("mount", target).source(&source);
            effect.fs_type(fs_type.as_deref()).options(&options).announce();
        })
        .await;
        Ok(())
    }

    async fn bind(&self, bind: &Bind) -> Result<()> {
        let before = self.mount_id_at(&bind.target).await;
        self.must("mount", &MountCommand::bind(bind)).await?;
        self.check_arrived(&bind.target, before).await?;
        let source = bind.source.clone();
        announce(&bind.target, move |target| Effect::new("bind", target).source(&source).announce()).await;
        Ok(())
    }

    async fn bind_opened(&self, opened: &OpenedBeneath, target: &Path) -> Result<()> {
        self.node.bind_opened(opened, target).await
    }

    async fn remount_bind(&self, source: &Path, target: &Path, options: &MountOptions) -> Result<()> {
        self.must("mount", &MountCommand::remount_bind(source, target, options)).await?;
        let options = options.masked_joined();
        announce(target, move |target| Effect::new("remount", target).options(&options).announce()).await;
        Ok(())
    }

    async fn set_propagation(&self, target: &Path, propagation: Propagation, recursive: bool) -> Result<()> {
        self.node.set_propagation(target, propagation, recursive).await
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        self.run_umount(target, false).await
    }

    async fn unmount_forced(&self, target: &Path) -> Result<()> {
        self.run_umount(target, true).await
    }

    async fn mount_table(&self) -> Result<MountTable> {
        self.node.mount_table().await
    }

    async fn mount_of(&self, path: &Path) -> Result<MountEntry> {
        self.node.mount_of(path).await
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.node.references(path).await
    }

    async fn is_likely_mount_point(&self, path: &Path) -> Result<bool> {
        self.node.is_likely_mount_point(path).await
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        self.node.is_mount_point(path).await
    }

    async fn make_dir_all(&self, path: &Path, mode: u32) -> Result<()> {
        self.node.make_dir_all(path, mode).await
    }

    async fn make_dir(&self, path: &Path, mode: u32) -> Result<()> {
        self.node.make_dir(path, mode).await
    }

    async fn remove_dir(&self, path: &Path) -> Result<()> {
        self.node.remove_dir(path).await
    }

    async fn remove_file(&self, path: &Path) -> Result<()> {
        self.node.remove_file(path).await
    }

    async fn remove_tree(&self, path: &Path, removal: Removal) -> Result<()> {
        self.node.remove_tree(path, removal).await
    }

    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.node.read_dir(path).await
    }

    async fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        self.node.read_file(path).await
    }

    async fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>> {
        self.node.read_end(path, most).await
    }

    async fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        self.node.write_file(path, bytes, mode).await
    }

    async fn create_file(&self, path: &Path, mode: u32) -> Result<()> {
        self.node.create_file(path, mode).await
    }

    async fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        self.node.symlink(target, link).await
    }

    async fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.node.read_link(path).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.node.rename(from, to).await
    }

    async fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.node.metadata(path).await
    }

    async fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        self.node.symlink_metadata(path).await
    }

    async fn access(&self, path: &Path) -> Result<()> {
        self.node.access(path).await
    }

    async fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        self.node.chmod(path, mode).await
    }

    async fn lchown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.node.lchown(path, uid, gid).await
    }

    async fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        self.node.canonicalize(path).await
    }

    async fn statfs(&self, path: &Path) -> Result<FsStats> {
        self.node.statfs(path).await
    }

    async fn disk_usage(&self, path: &Path) -> Result<Usage> {
        self.node.disk_usage(path).await
    }

    async fn change_ownership(
        &self,
        root: &Path,
        change: OwnershipChange,
        progress: &WalkProgress,
    ) -> Result<()> {
        self.node.change_ownership(root, change, progress).await
    }

    async fn open_beneath(&self, base: &Path, sub: &Path) -> Result<OpenedBeneath> {
        self.node.open_beneath(base, sub).await
    }

    async fn make_dirs_beneath(&self, base: &Path, sub: &Path, mode: u32) -> Result<()> {
        self.node.make_dirs_beneath(base, sub, mode).await
    }

    async fn lock_device(&self, path: &Path) -> Result<PathBuf> {
        self.node.lock_device(path).await
    }

    async fn find_lock(&self, path: &Path) -> Result<Option<PathBuf>> {
        self.node.find_lock(path).await
    }

    async fn unlock_device(&self, device: &Path) -> Result<()> {
        self.node.unlock_device(device).await
    }

    async fn device_opened(&self, path: &Path) -> Result<bool> {
        self.node.device_opened(path).await
    }

    async fn device_size(&self, path: &Path) -> Result<u64> {
        self.node.device_size(path).await
    }

    async fn probe_device(&self, device: &Path) -> Result<DiskContent> {
        let tool = disk_tools::probe(device);
        let output = self.tool(&tool).await?;
        match disk_tools::read_probe(output.code, &output.text) {
            Some(content) => Ok(content),
            None => Err(failure("blkid", &tool.program, &tool.arguments.join(" "), output)),
        }
    }

    async fn check_device(&self, device: &Path) -> Result<CheckOutcome> {
        let output = self.tool(&disk_tools::check(device)).await?;
        Ok(disk_tools::read_check(output.code, output.text))
    }

    async fn make_filesystem(&self, make: &MakeFilesystem) -> Result<()> {
        let tool = disk_tools::make(make);
        let output = self.tool(&tool).await?;
        if output.code != Some(0) {
            return Err(failure(&tool.program, &tool.program, &tool.arguments.join(" "), output));
        }
        let fs_type = make.fs_type.clone();
        announce(&make.device, move |device| {
            Effect::new("format", device).fs_type(Some(&fs_type)).announce();
        })
        .await;
        Ok(())
    }

    async fn grow_filesystem(&self, grow: &Grow) -> Result<()> {
        let tool = disk_tools::grow(grow)?;
        let output = self.tool(&tool).await?;
        if output.code != Some(0) {
            return Err(failure(&tool.program, &tool.program, &tool.arguments.join(" "), output));
        }
        let fs_type = grow.fs_type.clone();
        announce(&grow.device, move |device| Effect::new("grow", device).fs_type(Some(&fs_type)).announce())
            .await;
        Ok(())
    }

    async fn run_at(&self, program: &Path, arguments: &[String], target: &Path) -> Result<String> {
        self.node.run_at(program, arguments, target).await
    }

    async fn selinux_enabled(&self) -> bool {
        self.node.selinux_enabled().await
    }

    async fn tmpfs_takes_noswap(&self) -> bool {
        self.node.tmpfs_takes_noswap().await
    }
}
