//! Processes of the driver that a case stops and kills: the daemon of a FUSE volume, found when the volume is mounted, and a
//! program that the driver runs.

use std::panic::Location;
use std::path::Path;
use std::rc::Rc;

use harness::census::process::Process;

use super::{Call, Cx, Shared};
use crate::bed::daemons::is_fuse;
use crate::failure::Result;

/// The daemons of the driver at one time.
#[derive(Debug, Clone)]
pub struct Daemons(Vec<Process>);

/// The processes that serve one FUSE volume, or a program that the driver runs for one.
pub struct Daemon {
    shared: Rc<Shared>,
    processes: Vec<Process>,
}

impl Cx {
    /// The driver's daemons that serve FUSE file systems now.
    #[track_caller]
    pub fn daemons(&self) -> Daemons {
        self.shared.begin("cx.daemons()", Location::caller());
        Daemons(self.shared.bed.fuse_daemons())
    }

    /// The daemon that serves the file system mounted at a path: those that have come since `before`, or else all. None if it
    /// is no FUSE file system, or if the driver's own process serves it.
    #[track_caller]
    pub fn daemon_of(&self, path: &Path, before: &Daemons) -> Result<Option<Daemon>> {
        let doing = self.shared.begin("cx.daemon_of()", Location::caller());
        if !doing.done(is_fuse(path))? {
            return Ok(None);
        }
        let now = self.daemons();
        let processes = if now.has_more_than(before) { now.since(before) } else { now.0 };
        Ok((!processes.is_empty()).then(|| Daemon { shared: self.shared(), processes }))
    }

    /// Makes a call, and stops the first program that the driver starts for it. None if the call is answered before that.
    #[track_caller]
    pub fn program_hangs(&self, call: &mut Call) -> impl Future<Output = Option<Daemon>> {
        self.shared.begin("cx.program_hangs()", Location::caller());
        let mut watch = self.shared.bed.stop_next_program();
        async move {
            let (program, is_answered) = tokio::select! {
                biased;
                found = &mut watch.found => (found.ok().flatten(), false),
                _ = call => (watch.end().await, true),
            };
            let program = program?;
            if is_answered {
                // The call does not wait for it.
                self.shared.bed.let_go_on(&program);
                return None;
            }
            self.shared.bed.remember_stopped(&program);
            Some(Daemon { shared: self.shared(), processes: vec![program] })
        }
    }
}

impl Daemons {
    /// Whether a daemon runs that is not among those before.
    pub fn has_more_than(&self, before: &Self) -> bool {
        self.0.iter().any(|daemon| !before.0.contains(daemon))
    }

    fn since(self, before: &Self) -> Vec<Process> {
        self.0.into_iter().filter(|daemon| !before.0.contains(daemon)).collect()
    }
}

impl Daemon {
    /// Kills it. From now on each use of the file system of a daemon fails.
    #[track_caller]
    pub fn dies(&self) -> Result {
        let doing = self.shared.begin("daemon.dies()", Location::caller());
        doing.done(self.shared.bed.kill_daemons(&self.processes))
    }

    /// Stops it. From now on each use of the file system of a daemon waits, until it dies.
    #[track_caller]
    pub fn hangs(&self) -> Result {
        let doing = self.shared.begin("daemon.hangs()", Location::caller());
        doing.done(self.shared.bed.stop_daemons(&self.processes))
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Daemon").field(&self.processes).finish()
    }
}
