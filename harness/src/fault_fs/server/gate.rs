//! The gate: every call is put to the rules before anything is done.

use std::ffi::OsStr;
use std::io;
use std::thread;
use std::time::Duration;

use fuser::{
    Errno, INodeNo, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyWrite,
};

use super::super::rule::{Call, Fate, Operation};
use super::{Mirror, locked};

/// A reply that can be an error.
pub(super) trait Refuse: Send + 'static {
    fn refuse(self, errno: Errno);
}

macro_rules! refuse {
    ($($reply:ty),*) => {
        $(impl Refuse for $reply {
            fn refuse(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

refuse!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyEmpty,
    ReplyEntry,
    ReplyLseek,
    ReplyOpen,
    ReplyWrite
);

/// Answers with a value, or with the error there was instead.
pub(super) fn answer<R: Refuse, T>(reply: R, result: io::Result<T>, give: impl FnOnce(R, T)) {
    match result {
        Ok(value) => give(reply, value),
        Err(error) => reply.refuse(Errno::from(error)),
    }
}

impl Mirror {
    /// Puts a call to the rules. Nothing is returned if they have answered it, or will.
    fn admit<R: Refuse>(&self, call: &Call<'_>, reply: R) -> Option<(R, Fate)> {
        *locked(&self.shared.calls).entry(call.operation).or_default() += 1;
        let decision = locked(&self.shared.rules).decide(call);
        if decision.delay_ms > 0 {
            thread::sleep(Duration::from_millis(decision.delay_ms));
        }
        match decision.fate {
            Fate::Fail(errno) => reply.refuse(Errno::from_i32(errno)),
            Fate::Hang => self.shared.held.hold(move |errno| reply.refuse(errno)),
            // Nothing is flushed, no request is answered.
            Fate::Die => drop(nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)),
            fate => return Some((reply, fate)),
        }
        None
    }

    pub(super) fn admit_inode<R: Refuse>(&self, operation: Operation, inode: INodeNo, reply: R) -> Option<R> {
        self.admit_range(operation, inode, 0..0, reply).map(|(reply, _)| reply)
    }

    pub(super) fn admit_range<R: Refuse>(
        &self,
        operation: Operation,
        inode: INodeNo,
        range: std::ops::Range<u64>,
        reply: R,
    ) -> Option<(R, Fate)> {
        match self.shared.inodes.get(inode) {
            Ok((_, path)) => {
                let length = range.end - range.start;
                self.admit(&Call { operation, path: &path, offset: range.start, length }, reply)
            }
            Err(error) => {
                reply.refuse(Errno::from(error));
                None
            }
        }
    }

    pub(super) fn admit_name<R: Refuse>(
        &self,
        operation: Operation,
        parent: INodeNo,
        name: &OsStr,
        reply: R,
    ) -> Option<R> {
        let path = self.shared.inodes.path_of(parent, name);
        self.admit(&Call { operation, path: &path, offset: 0, length: 0 }, reply).map(|(reply, _)| reply)
    }
}
