//! A descriptor or a working directory somewhere in the simulated kernel. Touches nothing real.

use super::kernel::{FakeKernel, FsId, State};
use super::walk::At;

/// An open file or directory. While it lives its mount is busy, and its inode stays after its name is removed.
#[derive(Debug)]
pub struct Hold {
    kernel: FakeKernel,
    pub(super) at: At,
    fs: FsId,
}

impl Hold {
    /// Opens a place. Takes the locked state; the hold must not be dropped under that lock.
    pub(super) fn new(kernel: &FakeKernel, state: &mut State, at: At) -> Self {
        let fs = state.mount(at.mount).fs;
        state.mount_mut(at.mount).holds += 1;
        state.fs_mut(fs).pin(at.ino);
        state.keep_fs(fs);
        Self { kernel: kernel.clone(), at, fs }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.kernel.lock();
        if state.mount_exists(self.at.mount) {
            state.mount_mut(self.at.mount).holds -= 1;
        }
        state.fs_mut(self.fs).unpin(self.at.ino);
        state.release_fs(self.fs);
    }
}
