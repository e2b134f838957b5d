//! The part of `nfsdcld` that ends the grace period. That daemon gives a server the list of its earlier clients.
//!
//! A server that has just started lets no client open a file for some seconds, in which earlier clients may reclaim their
//! locks. This stub names no earlier client, so the server begins at once. Older kernels keep the clients in a directory
//! instead, and end the period on request.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags};
use nix::poll::{PollFd, PollFlags, PollTimeout};

/// The directory in which older kernels keep the clients.
const DIRECTORY: &str = "/var/lib/nfs/v4recovery";

/// The mount point of the kernel's pipes.
const PIPES: &str = "/var/lib/nfs/rpc_pipefs";

/// The command by which the kernel asks for the version of the protocol: it is answered with 1.
const GET_VERSION: u8 = 5;

/// Offsets in a message: the command, the answer's status, and the union behind the id.
const COMMAND: usize = 1;
const STATUS: std::ops::Range<usize> = 2..4;
const UNION: usize = 8;

/// The pause between two looks for the pipe, and for the end of the stub.
const LOOK: Duration = Duration::from_millis(20);

/// The stub, until it is dropped.
#[derive(Debug)]
pub(super) struct Tracking {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tracking {
    pub(super) fn start() -> io::Result<Self> {
        fs::create_dir_all(DIRECTORY)?;
        fs::create_dir_all(PIPES)?;
        nix::mount::mount(Some("rpc_pipefs"), PIPES, Some("rpc_pipefs"), MsFlags::empty(), None::<&str>)?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = thread::spawn(move || {
            // The pipe comes with the server, which waits a moment for a reader to open it, and goes with it.
            let path = Path::new(PIPES).join("nfsd/cld");
            let mut pipe = None;
            while !seen.load(Ordering::Relaxed) {
                if !path.exists() {
                    pipe = None;
                } else if pipe.is_none() {
                    pipe = OpenOptions::new().read(true).write(true).open(&path).ok();
                }
                match &pipe {
                    // An answer that is not taken is asked for again.
                    Some(pipe) => drop(answer(pipe)),
                    None => thread::sleep(LOOK),
                }
            }
            drop(pipe);
            unmount();
        });
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn unmount() {
    let _ = nix::mount::umount2(PIPES, MntFlags::MNT_DETACH);
}

/// Answers one message, if there is one within a moment.
fn answer(mut pipe: &File) -> io::Result<()> {
    let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    if nix::poll::poll(&mut ready, PollTimeout::from(20u8))? == 0 {
        return Ok(());
    }
    let mut message = [0; 4096];
    let length = pipe.read(&mut message)?;
    if let Some(message) = message.get_mut(..length).filter(|message| message.len() > UNION) {
        done(message);
        pipe.write_all(message)?;
    }
    Ok(())
}

/// Turns a question into "done"; the version we speak is 1.
fn done(message: &mut [u8]) {
    message[STATUS].fill(0);
    if message[COMMAND] == GET_VERSION {
        message[UNION] = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_with_success_and_our_version() {
        let mut message = [2, GET_VERSION, 0xff, 0xff, 1, 2, 3, 4, 9, 9];
        done(&mut message);
        assert_eq!(message, [2, GET_VERSION, 0, 0, 1, 2, 3, 4, 1, 9]);
    }
}
