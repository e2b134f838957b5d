//! Where a row stands: a host, and a directory on a file system of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::fake::FakeHost;
use host::linux::LinuxHost;
use host::{Host, MountSpec};

use crate::namespace::in_namespace;

/// What a row is given.
pub(crate) struct Ground {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) root: PathBuf,
}

impl Ground {
    /// A path below the root.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
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
}

/// Runs a row on the real kernel and on the simulated one.
pub(crate) fn on_both(row: impl AsyncFn(&Ground) + Copy + Send + 'static) {
    on_the_fake(row);
    on_the_kernel(row);
}

/// Runs a row on the simulated kernel.
pub(crate) fn on_the_fake(row: impl AsyncFn(&Ground)) {
    let (host, root) = (FakeHost::default(), PathBuf::from("/run/row"));
    runtime().block_on(async {
        host.make_dir_all(&root, 0o755).await.unwrap();
        host.mount(&MountSpec::new("tmpfs", &root, "tmpfs")).await.unwrap();
        row(&Ground { host: host.shared(), root }).await;
    });
}

/// Runs a row on the real kernel.
pub(crate) fn on_the_kernel(row: impl AsyncFn(&Ground) + Send + 'static) {
    if let Err(reason) = in_namespace(move || run_row(row)) {
        eprintln!("not run on the real kernel: {reason}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn run_row(row: impl AsyncFn(&Ground)) {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let host = LinuxHost::shared();
        host.mount(&MountSpec::new("tmpfs", &root, "tmpfs")).await.unwrap();
        row(&Ground { host, root: root.clone() }).await;
    });
    drop(runtime);
    detach(&root);
}

/// Takes the row's file system out of the tree, whatever is left on it.
fn detach(root: &Path) {
    nix::mount::umount2(root, nix::mount::MntFlags::MNT_DETACH).unwrap();
}
