//! The testbed of a test: a host, and a directory on a file system of its own.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use host::fake::{FakeHost, FakeKernel};
use host::linux::LinuxHost;
use host::{Host, MountSpec, errno};

use crate::namespace::in_namespace;

pub(crate) struct Ground {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) root: PathBuf,
    /// For a simulated machine.
    pub(crate) fake: Option<FakeHost>,
    disks: Cell<u32>,
    /// Loop devices to detach after the test: a mount namespace does not contain them.
    loops: RefCell<Vec<PathBuf>>,
}

impl Ground {
    fn new(host: Arc<dyn Host>, root: PathBuf, fake: Option<FakeHost>) -> Self {
        Self { host, root, fake, disks: Cell::new(0), loops: RefCell::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn kernel(&self) -> Option<&FakeKernel> {
        self.fake.as_ref().map(FakeHost::kernel)
    }

    /// A new directory below the root.
    pub(crate) async fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        self.host.make_dir_all(&path, 0o755).await.unwrap();
        path
    }

    /// A new file below the root.
    pub(crate) async fn file(&self, name: &str, bytes: &str) -> PathBuf {
        let path = self.path(name);
        self.host.write_file(&path, bytes.as_bytes(), 0o644).await.unwrap();
        path
    }

    /// A new tmpfs below the root.
    pub(crate) async fn tmpfs(&self, name: &str) -> PathBuf {
        let path = self.dir(name).await;
        self.host.mount(&MountSpec::new("tmpfs", &path, "tmpfs")).await.unwrap();
        path
    }

    /// A dead mount below the root (ENOTCONN).
    pub(crate) async fn corpse(&self, name: &str) -> PathBuf {
        let path = self.dir(name).await;
        if let Some(kernel) = self.kernel() {
            kernel.mount("corpse", &path, "fuse", &[]).unwrap();
            kernel.break_filesystem(&path, errno::ENOTCONN).unwrap();
        } else {
            mount_dead_fuse(&path);
        }
        path
    }

    /// An empty disk: the path of its node.
    pub(crate) async fn disk(&self, bytes: u64) -> PathBuf {
        let name = format!("disk{}", self.disks.replace(self.disks.get() + 1));
        if let Some(kernel) = self.kernel() {
            kernel.add_disk(&name, bytes).unwrap();
            return Path::new("/dev").join(name);
        }
        let file = self.path(&format!("{name}.img"));
        File::create(&file).unwrap().set_len(bytes).unwrap();
        let device = self.host.lock_device(&file).await.unwrap();
        self.loops.borrow_mut().push(device.clone());
        device
    }

    /// Makes a disk larger.
    pub(crate) fn resize_disk(&self, device: &Path, bytes: u64) {
        if let Some(kernel) = self.kernel() {
            return kernel.resize_disk(device, bytes).unwrap();
        }
        let number = device.to_str().unwrap().trim_start_matches("/dev/loop").to_owned();
        let backing = std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).unwrap();
        File::options().write(true).open(backing.trim_end()).unwrap().set_len(bytes).unwrap();
        assert!(Command::new("losetup").arg("--set-capacity").arg(device).status().unwrap().success());
    }

    /// Detaches a loop device after the test.
    pub(crate) fn owns_loop(&self, device: &Path) {
        self.loops.borrow_mut().push(device.to_owned());
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.fake.is_some() {
            return;
        }
        // Mounts first: devices are busy while a failed test's mounts remain.
        while nix::mount::umount2(&self.root, nix::mount::MntFlags::MNT_DETACH).is_ok() {}
        for device in self.loops.take() {
            Command::new("losetup").arg("-d").arg(device).output().ok();
        }
    }
}

/// Mounts a FUSE file system whose server is gone.
fn mount_dead_fuse(target: &Path) {
    let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("corpse"), target, Some("fuse"), flags, Some(options.as_str())).unwrap();
}

/// Runs a test on the real kernel and on the simulated one.
pub(crate) fn on_both(test: impl AsyncFn(&Ground) + Copy + Send + 'static) {
    on_the_fake(test);
    on_the_kernel(test);
}

/// Runs a test on the simulated kernel.
pub(crate) fn on_the_fake(test: impl AsyncFn(&Ground)) {
    let (host, root) = (FakeHost::default(), PathBuf::from("/run/row"));
    runtime().block_on(async {
        host.make_dir_all(&root, 0o755).await.unwrap();
        host.mount(&MountSpec::new("tmpfs", &root, "tmpfs")).await.unwrap();
        test(&Ground::new(host.shared(), root, Some(host))).await;
    });
}

/// Runs a test on the real kernel.
pub(crate) fn on_the_kernel(test: impl AsyncFn(&Ground) + Send + 'static) {
    let run = in_namespace(move || {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        runtime().block_on(async {
            let host = LinuxHost::shared();
            host.mount(&MountSpec::new("tmpfs", &root, "tmpfs")).await.unwrap();
            test(&Ground::new(host, root, None)).await;
        });
    });
    if let Err(reason) = run {
        eprintln!("not run on the real kernel: {reason}");
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}
