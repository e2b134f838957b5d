//! Operations on the simulated kernel.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use host::MountTable;
use host::errno::Errno;
use host::fake::{FakeKernel, Hold};

use super::operation::{DIRS, Operation};

pub(crate) struct Simulated {
    kernel: FakeKernel,
    root: PathBuf,
    holds: VecDeque<Hold>,
}

impl Simulated {
    pub(crate) fn new() -> Self {
        let (kernel, root) = (FakeKernel::new(), PathBuf::from("/run/root"));
        kernel.make_dir_all(&root, 0o755).unwrap();
        kernel.mount("tmpfs", &root, "tmpfs", &[]).unwrap();
        let new = Self { kernel, root, holds: VecDeque::new() };
        new.furnish(&new.root).unwrap();
        new
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn table(&self) -> MountTable {
        self.kernel.mount_table()
    }

    fn furnish(&self, dir: &Path) -> Result<(), Errno> {
        for name in DIRS {
            self.kernel.make_dir(&dir.join(name), 0o755)?;
        }
        self.kernel.write_file(&dir.join("f"), b"", 0o644)
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), i32> {
        self.done(operation).map_err(|Errno(number)| number)
    }

    fn done(&mut self, operation: &Operation) -> Result<(), Errno> {
        let at = |path: &str| if path.is_empty() { self.root.clone() } else { self.root.join(path) };
        let kernel = &self.kernel;
        match operation {
            Operation::Tmpfs(path) => {
                kernel.mount("tmpfs", &at(path), "tmpfs", &[])?;
                self.furnish(&at(path))
            }
            Operation::Bind { from, to, recursive } => kernel.bind(&at(from), &at(to), *recursive),
            Operation::Move { from, to } => kernel.move_mount(&at(from), &at(to)),
            Operation::Propagate { path, kind, recursive } => {
                kernel.set_propagation(&at(path), *kind, *recursive)
            }
            Operation::Unmount { path, lazy } => kernel.unmount(&at(path), *lazy),
            Operation::ReadOnly(path) => kernel.remount_bind(&at(path), &["ro"]),
            Operation::Hold(path) => {
                self.holds.push_back(kernel.hold(&at(path))?);
                Ok(())
            }
            Operation::Release => {
                self.holds.pop_front();
                Ok(())
            }
            Operation::MakeDir(path) => kernel.make_dir(&at(path), 0o755),
            Operation::RemoveDir(path) => kernel.remove_dir(&at(path)),
            Operation::RemoveFile(path) => kernel.remove_file(&at(path)),
            Operation::Rename { from, to } => kernel.rename(&at(from), &at(to)),
        }
    }
}
