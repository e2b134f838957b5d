//! [`Host`] of a simulated machine: each method takes one step of the fake kernel and announces its effect.
//! Touches nothing real.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::file::Blocked;
use super::kernel::State;
use super::tree::Node;
use super::{FakeHost, Hold};
use crate::door::{Bind, Host, OpenedBeneath, Propagation, Removal};
use crate::effect::Effect;
use crate::errno::{self, Errno};
use crate::error::{Action, HostError, Result};
use crate::file::{DirEntry, FileKind, FsStats, Metadata, Usage};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};
use crate::mount_table::{MountEntry, MountTable};
use crate::options::{MountOptions, MountSpec, Scope};
use crate::ownership::{OwnershipChange, WalkProgress};
use crate::sub_path::{names, refusal};

/// All options in plain text, secrets included, as the kernel gets them.
fn exposed(options: &MountOptions) -> Vec<String> {
    let secrets = options.sensitive().iter().map(|secret| secret.expose().clone());
    options.plain().iter().cloned().chain(secrets).collect()
}

/// Adds the action and the path to an error number.
fn on(action: Action, path: &Path) -> impl FnOnce(Errno) -> HostError {
    move |number| HostError::os(action, path, number)
}

#[async_trait]
impl Host for FakeHost {
    async fn mount(&self, spec: &MountSpec) -> Result<()> {
        let fs_type = spec.fs_type.clone();
        let act = |kernel: &mut State| {
            let fs_type = match fs_type {
                Some(fs_type) => fs_type,
                None => match &kernel.block(Path::new(&spec.source))?.content {
                    DiskContent::FileSystem(fs_type) => fs_type.clone(),
                    DiskContent::Nothing | DiskContent::Partitions => return Err(Errno(errno::EINVAL)),
                },
            };
            kernel.mount_new(&spec.source, &spec.target, &fs_type, &exposed(&spec.options))?;
            if spec.scope == Scope::Systemd {
                kernel.scoped.push(spec.target.clone());
            }
            Ok(fs_type)
        };
        let step = self.change("mount", &spec.target, act, |fs_type: &String| {
            Effect::new("mount", &spec.target)
                .source(Path::new(&spec.source))
                .fs_type(Some(fs_type))
                .options(&spec.options.masked_joined())
                .announce();
        });
        step.await.map_err(|error| HostError::pair(Action::Mount, &spec.source, &spec.target, error))?;
        Ok(())
    }

    async fn bind(&self, bind: &Bind) -> Result<()> {
        let act = |kernel: &mut State| {
            // mount(2) resolves the target first: if both paths are missing, its error is the target's.
            let (target, source) = (kernel.resolve(&bind.target, true)?, kernel.resolve(&bind.source, true)?);
            kernel.bind(source, target, bind.recursive)
        };
        let announce = |(): &()| Effect::new("bind", &bind.target).source(&bind.source).announce();
        let step = self.change("bind", &bind.target, act, announce);
        step.await.map_err(|error| HostError::pair(Action::Bind, &bind.source, &bind.target, error))
    }

    async fn bind_opened(&self, opened: &OpenedBeneath, target: &Path) -> Result<()> {
        let act = |kernel: &mut State| {
            let held: &Hold = opened.handle().ok_or(Errno(errno::EINVAL))?;
            // EINVAL if the file's mount was unmounted lazily after the file was opened.
            if !kernel.mount_exists(held.at.mount) {
                return Err(Errno(errno::EINVAL));
            }
            // A symbolic link at the end of the path is not followed, and cannot be mounted on.
            let target = kernel.resolve(target, false)?;
            let (opened_kind, target_kind) = (kernel.kind_at(held.at), kernel.kind_at(target));
            let is_dir = |kind| kind == FileKind::Directory;
            match target_kind {
                FileKind::Symlink => Err(Errno(errno::EINVAL)),
                _ if is_dir(opened_kind) != is_dir(target_kind) => Err(Errno(errno::ENOTDIR)),
                _ => kernel.bind(held.at, target, false),
            }
        };
        let announce = |(): &()| Effect::new("bind", target).source(&opened.path).announce();
        let step = self.change("bind_opened", target, act, announce);
        step.await.map_err(|error| HostError::pair(Action::Bind, &opened.path, target, error))
    }

    async fn remount_bind(&self, _source: &Path, target: &Path, options: &MountOptions) -> Result<()> {
        let act = |kernel: &mut State| {
            let at = kernel.resolve(target, true)?;
            kernel.remount_bind(at, &exposed(options))
        };
        let announce = |(): &()| Effect::new("remount", target).options(&options.masked_joined()).announce();
        self.change("remount_bind", target, act, announce).await.map_err(on(Action::Remount, target))
    }

    async fn set_propagation(&self, target: &Path, propagation: Propagation, recursive: bool) -> Result<()> {
        let act = |kernel: &mut State| {
            let at = kernel.resolve(target, true)?;
            kernel.set_propagation(at, propagation, recursive)
        };
        let announce =
            |(): &()| Effect::new("remount", target).options(propagation.word(recursive)).announce();
        self.change("set_propagation", target, act, announce).await.map_err(on(Action::Propagate, target))
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        self.unmount_topmost("unmount", target).await
    }

    async fn unmount_forced(&self, target: &Path) -> Result<()> {
        self.unmount_topmost("unmount_forced", target).await
    }

    async fn mount_table(&self) -> Result<MountTable> {
        let path = Path::new("/proc/thread-self/mountinfo");
        let step = self.step("mount_table", path, |kernel| Ok(kernel.mount_table()));
        step.await.map_err(on(Action::ReadMountTable, path))
    }

    async fn mount_of(&self, path: &Path) -> Result<MountEntry> {
        let step = self.step("mount_of", path, |kernel| {
            let mount = kernel.mount_at(path)?;
            Ok(kernel.entry(mount, kernel.mount(mount)))
        });
        step.await.map_err(on(Action::Stat, path))
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let step = self.step("references", path, |kernel| Ok(kernel.references(path)));
        step.await.map_err(on(Action::ReadMountTable, path))
    }

    async fn is_likely_mount_point(&self, path: &Path) -> Result<bool> {
        let step = self.step("is_likely_mount_point", path, |kernel| {
            let at = kernel.resolve(path, true)?;
            Ok(kernel.is_mount_root(at))
        });
        step.await.map_err(on(Action::Stat, path))
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        let step = self.step("is_mount_point", path, |kernel| {
            let at = kernel.resolve(path, true)?;
            // The real host resolves the path first, which fails on a dead mount.
            kernel.fs_of(at.mount).ask()?;
            Ok(kernel.is_mount_root(at))
        });
        step.await.map_err(on(Action::Resolve, path))
    }

    async fn make_dir_all(&self, path: &Path, mode: u32) -> Result<()> {
        let act = |kernel: &mut State| kernel.make_dir_all(path, mode);
        let announce =
            |made: &Vec<PathBuf>| made.iter().for_each(|made| Effect::new("mkdir", made).announce());
        self.change("make_dir_all", path, act, announce).await.map_err(on(Action::MakeDir, path))?;
        Ok(())
    }

    async fn make_dir(&self, path: &Path, mode: u32) -> Result<()> {
        let act = |kernel: &mut State| kernel.make_dir(path, mode);
        let announce = |(): &()| Effect::new("mkdir", path).announce();
        self.change("make_dir", path, act, announce).await.map_err(on(Action::MakeDir, path))
    }

    async fn remove_dir(&self, path: &Path) -> Result<()> {
        let act = |kernel: &mut State| kernel.remove_dir(path);
        let announce = |(): &()| Effect::new("rmdir", path).announce();
        self.change("remove_dir", path, act, announce).await.map_err(on(Action::RemoveDir, path))
    }

    async fn remove_file(&self, path: &Path) -> Result<()> {
        let act = |kernel: &mut State| kernel.remove_file(path);
        let announce = |kind: &FileKind| {
            Effect::new(if *kind == FileKind::Symlink { "unlink" } else { "remove" }, path).announce();
        };
        self.change("remove_file", path, act, announce).await.map_err(on(Action::RemoveFile, path))?;
        Ok(())
    }

    async fn remove_tree(&self, path: &Path, removal: Removal) -> Result<()> {
        let mut blocked = None;
        let act = |kernel: &mut State| {
            if kernel.resolve(path, false) == Err(Errno(errno::ENOENT)) {
                return Ok(false);
            }
            kernel.remove_tree(path, removal).map(|()| true).map_err(|(at, cause)| {
                // The match below turns `blocked` into the error: EBUSY for a mount point is not shown.
                let number = if let Blocked::Os(number) = cause { number } else { Errno(errno::EBUSY) };
                blocked = Some((at, cause));
                number
            })
        };
        let announce = |removed: &bool| {
            if *removed {
                Effect::new("remove", path).announce();
            }
        };
        let removed = self.change("remove_tree", path, act, announce).await;
        match (removed.map_err(on(Action::RemoveTree, path)), blocked) {
            (Err(_), Some((at, Blocked::MountPoint))) => Err(HostError::IsMountPoint { path: at }),
            (Err(_), Some((at, Blocked::Os(number)))) => Err(HostError::os(Action::RemoveTree, at, number)),
            (removed, _) => removed.map(drop),
        }
    }

    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let step = self.step("read_dir", path, |kernel| kernel.read_dir(path));
        step.await.map_err(on(Action::ReadDir, path))
    }

    async fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        let step = self.step("read_file", path, |kernel| kernel.read_file(path));
        step.await.map_err(on(Action::Read, path))
    }

    async fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>> {
        let step = self.step("read_end", path, |kernel| kernel.read_end(path, most));
        step.await.map_err(on(Action::Read, path))
    }

    async fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let act = |kernel: &mut State| kernel.write_file(path, bytes, mode);
        let announce = |(): &()| Effect::new("write", path).announce();
        self.change("write_file", path, act, announce).await.map_err(on(Action::Write, path))
    }

    async fn create_file(&self, path: &Path, mode: u32) -> Result<()> {
        let act = |kernel: &mut State| kernel.create(path, Node::File(Vec::new()), mode);
        let announce = |(): &()| Effect::new("write", path).announce();
        self.change("create_file", path, act, announce).await.map_err(on(Action::Create, path))
    }

    async fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        let node = Node::Link(target.to_owned());
        let act = |kernel: &mut State| kernel.create(link, node, 0o777);
        let announce = |(): &()| Effect::new("link", link).to(&target.to_string_lossy()).announce();
        let step = self.change("symlink", link, act, announce);
        step.await.map_err(|error| HostError::pair(Action::Link, target, link, error))
    }

    async fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let step = self.step("read_link", path, |kernel| kernel.read_link(path));
        step.await.map_err(on(Action::ReadLink, path))
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let act = |kernel: &mut State| kernel.rename(from, to);
        let announce = |(): &()| Effect::new("rename", from).to(&to.to_string_lossy()).announce();
        let step = self.change("rename", to, act, announce);
        step.await.map_err(|error| HostError::pair(Action::Rename, from, to, error))
    }

    async fn metadata(&self, path: &Path) -> Result<Metadata> {
        let step = self.step("metadata", path, |kernel| {
            let at = kernel.resolve(path, true)?;
            kernel.fs_of(at.mount).metadata(at.ino)
        });
        step.await.map_err(on(Action::Stat, path))
    }

    async fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        let step = self.step("symlink_metadata", path, |kernel| {
            let at = kernel.resolve(path, false)?;
            kernel.fs_of(at.mount).metadata(at.ino)
        });
        step.await.map_err(on(Action::Stat, path))
    }

    async fn access(&self, path: &Path) -> Result<()> {
        let step = self.step("access", path, |kernel| {
            let at = kernel.resolve(path, true)?;
            kernel.fs_of(at.mount).ask()
        });
        step.await.map_err(on(Action::Access, path))
    }

    async fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        let act = |kernel: &mut State| kernel.chmod(path, mode);
        let announce = |(): &()| Effect::new("chmod", path).to(&format!("{mode:04o}")).announce();
        self.change("chmod", path, act, announce).await.map_err(on(Action::Chmod, path))
    }

    async fn lchown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let act = |kernel: &mut State| kernel.lchown(path, uid, gid);
        let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
        let announce =
            |(): &()| Effect::new("chown", path).to(&format!("{}:{}", id(uid), id(gid))).announce();
        self.change("lchown", path, act, announce).await.map_err(on(Action::Chown, path))
    }

    async fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        let step = self.step("canonicalize", path, |kernel| {
            let at = kernel.resolve(path, true)?;
            kernel.fs_of(at.mount).ask()?;
            Ok(kernel.path_of(at))
        });
        step.await.map_err(on(Action::Resolve, path))
    }

    async fn statfs(&self, path: &Path) -> Result<FsStats> {
        let step = self.step("statfs", path, |kernel| kernel.statfs(path));
        step.await.map_err(on(Action::StatFs, path))
    }

    async fn disk_usage(&self, path: &Path) -> Result<Usage> {
        let step = self.step("disk_usage", path, |kernel| kernel.disk_usage(path));
        step.await.map_err(on(Action::Measure, path))
    }

    async fn change_ownership(
        &self,
        root: &Path,
        change: OwnershipChange,
        progress: &WalkProgress,
    ) -> Result<()> {
        let act = |kernel: &mut State| {
            let at = kernel.resolve(root, false)?;
            for place in kernel.tree_below(at, true)? {
                if progress.is_stopped() {
                    return Ok(false);
                }
                let before = kernel.fs_of(place.mount).metadata(place.ino)?;
                progress.count();
                // A read-only entry is skipped.
                if kernel.writable(place).is_err() {
                    continue;
                }
                if before.gid != change.gid {
                    kernel.chown_at(place, None, Some(change.gid));
                }
                if let Some(mode) = change.mode_of(before.kind, before.mode) {
                    kernel.fs_of_mut(place.mount).inode_mut(place.ino).mode = mode;
                }
            }
            Ok(true)
        };
        let announce = |completed: &bool| {
            if *completed {
                Effect::new("chown", root).to(&format!(":{}", change.gid)).announce();
            }
        };
        let result = self.change("change_ownership", root, act, announce).await;
        match result.map_err(on(Action::Chown, root))? {
            true => Ok(()),
            false => Err(HostError::Stopped { path: root.to_owned() }),
        }
    }

    async fn open_beneath(&self, base: &Path, sub: &Path) -> Result<OpenedBeneath> {
        names(base, sub)?;
        // An error before `base` is resolved is an error of `base` itself.
        let mut base_resolved = false;
        let step = self.step("open_beneath", base, |kernel| {
            let base = kernel.resolve_dir(base)?;
            base_resolved = true;
            let at = kernel.resolve_beneath(base, sub)?;
            let (metadata, path) = (kernel.fs_of(at.mount).metadata(at.ino)?, kernel.path_of(at));
            Ok((metadata, path, Hold::new(&self.kernel, kernel, at)))
        });
        let (metadata, path, hold) = step.await.map_err(|number| {
            if base_resolved { refusal(base, sub, number) } else { HostError::os(Action::Open, base, number) }
        })?;
        Ok(OpenedBeneath::new(metadata, path, Arc::new(hold)))
    }

    async fn make_dirs_beneath(&self, base: &Path, sub: &Path, mode: u32) -> Result<()> {
        let names = names(base, sub)?;
        // An error before `base` is resolved is an error of `base` itself.
        let mut base_resolved = false;
        let act = |kernel: &mut State| {
            let base = kernel.resolve_dir(base)?;
            base_resolved = true;
            kernel.make_dirs_beneath(base, &names, mode)
        };
        let announce = |made: &Vec<PathBuf>| {
            made.iter().for_each(|made| Effect::new("mkdir", &base.join(made)).announce());
        };
        let result = self.change("make_dirs_beneath", base, act, announce).await;
        result.map(drop).map_err(|number| {
            if base_resolved { refusal(base, sub, number) } else { HostError::os(Action::Open, base, number) }
        })
    }

    async fn lock_device(&self, path: &Path) -> Result<PathBuf> {
        let act = |kernel: &mut State| match kernel.find_loop(path)? {
            Some(device) => Ok((device, false)),
            None => Ok((kernel.attach_loop(path)?, true)),
        };
        let announce = |(device, new): &(PathBuf, bool)| {
            if *new {
                Effect::new("lock", path).source(device).announce();
            }
        };
        let result = self.change("lock_device", path, act, announce).await;
        Ok(result.map_err(on(Action::LockDevice, path))?.0)
    }

    async fn find_lock(&self, path: &Path) -> Result<Option<PathBuf>> {
        let step = self.step("find_lock", path, |kernel| kernel.find_loop(path));
        step.await.map_err(on(Action::FindLock, path))
    }

    async fn unlock_device(&self, device: &Path) -> Result<()> {
        let act = |kernel: &mut State| kernel.detach_loop(device);
        let announce = |backing: &Option<PathBuf>| {
            if let Some(backing) = backing {
                Effect::new("unlock", device).source(backing).announce();
            }
        };
        self.change("unlock_device", device, act, announce)
            .await
            .map_err(on(Action::UnlockDevice, device))?;
        Ok(())
    }

    async fn device_opened(&self, path: &Path) -> Result<bool> {
        let step = self.step("device_opened", path, |kernel| kernel.device_opened(path));
        step.await.map_err(on(Action::Open, path))
    }

    async fn device_size(&self, path: &Path) -> Result<u64> {
        let step = self.step("device_size", path, |kernel| kernel.device_size(path));
        step.await.map_err(on(Action::Measure, path))
    }

    async fn probe_device(&self, device: &Path) -> Result<DiskContent> {
        let step = self.step("probe_device", device, |kernel| Ok(kernel.block(device)?.content.clone()));
        step.await.map_err(on(Action::Open, device))
    }

    async fn check_device(&self, device: &Path) -> Result<CheckOutcome> {
        let step = self.step("check_device", device, |kernel| Ok(kernel.block(device)?.check.clone()));
        step.await.map_err(on(Action::Open, device))
    }

    async fn make_filesystem(&self, make: &MakeFilesystem) -> Result<()> {
        let act = |kernel: &mut State| kernel.format(&make.device, &make.fs_type);
        let announce = |(): &()| Effect::new("format", &make.device).fs_type(Some(&make.fs_type)).announce();
        let step = self.change("make_filesystem", &make.device, act, announce);
        step.await.map_err(on(Action::Write, &make.device))
    }

    async fn grow_filesystem(&self, grow: &Grow) -> Result<()> {
        if !matches!(grow.fs_type.as_str(), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs") {
            let (device, fs_type) = (grow.device.clone(), grow.fs_type.clone());
            return Err(HostError::CannotGrow { device, fs_type });
        }
        let act = |kernel: &mut State| kernel.grow(&grow.device);
        let announce = |(): &()| Effect::new("grow", &grow.device).fs_type(Some(&grow.fs_type)).announce();
        let step = self.change("grow_filesystem", &grow.device, act, announce);
        step.await.map_err(on(Action::Write, &grow.device))
    }

    /// No program can be run on a simulated machine.
    async fn run_at(&self, program: &Path, _arguments: &[String], _target: &Path) -> Result<String> {
        let step = self.step("run_at", program, |_| Err(Errno(errno::ENOENT)));
        step.await.map_err(on(Action::Run, program))
    }

    async fn selinux_enabled(&self) -> bool {
        self.kernel.lock().selinux
    }

    async fn tmpfs_takes_noswap(&self) -> bool {
        true
    }
}

impl FakeHost {
    async fn unmount_topmost(&self, method: &'static str, target: &Path) -> Result<()> {
        let act = |kernel: &mut State| {
            let at = kernel.resolve(target, false)?;
            match kernel.unmount(at, false) {
                Ok(()) => Ok(true),
                Err(Errno(errno::EINVAL)) => Ok(false),
                Err(number) => Err(number),
            }
        };
        let announce = |unmounted: &bool| {
            if *unmounted {
                Effect::new("umount", target).announce();
            }
        };
        self.change(method, target, act, announce).await.map_err(on(Action::Unmount, target))?;
        Ok(())
    }
}
