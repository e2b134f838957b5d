//! An NFS server of the case's own, which can die and come back, and volumes on it.

use std::future::ready;
use std::io;
use std::panic::Location;
use std::rc::Rc;

use nix::errno::Errno;
use tokio::task::JoinHandle;

use super::{Cx, Doing, Pod, Shared, Volume};
use crate::bed::NfsSpec;
use crate::failure::Result;
use crate::need::Need;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nfs {
    /// Version 3: without state, with a protocol of its own for mounting.
    V3,
    /// Version 4.2: files are opened on the server.
    V4,
}

/// The error of a failing read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// `ESTALE`: the server does not know the file any more.
    Stale,
    /// `EIO`: the client gave the server up.
    GivenUp,
    /// `EACCES`: the user has no permission.
    Denied,
}

#[derive(Debug, Clone)]
pub struct NfsServer {
    shared: Rc<Shared>,
}

/// A read that does not answer yet.
#[derive(Debug)]
pub struct Reading {
    pod: Pod,
    path: String,
    handle: JoinHandle<io::Result<String>>,
}

impl Nfs {
    /// The needs of a case with this version, beside its own.
    pub const fn needs(self) -> &'static [Need] {
        &[]
    }

    fn number(self) -> u8 {
        match self {
            Self::V3 => 3,
            Self::V4 => 4,
        }
    }
}

impl Cx {
    /// Starts an NFS server that exports a directory.
    #[track_caller]
    pub fn nfs_server(&self) -> impl Future<Output = Result<NfsServer>> {
        let shared = self.shared();
        let doing = shared.begin("cx.nfs_server()", Location::caller());
        async move {
            doing.done(shared.bed.start_nfs().await)?;
            Ok(NfsServer { shared })
        }
    }
}

impl NfsServer {
    /// A volume that is the export, mounted by that version and these options of mount(8).
    #[track_caller]
    pub fn volume(&self, name: &str, version: Nfs, options: &[&str]) -> impl Future<Output = Result<Volume>> {
        let doing = self.begin(&format!("volume(\"{name}\")"), Location::caller());
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let spec = NfsSpec { name: name.to_owned(), version: version.number(), options };
        let made = doing.done(self.shared.bed.create_nfs_volume(&spec));
        ready(made.map(|()| Volume { name: name.to_owned() }))
    }

    /// The server dies: connections to its port are refused.
    #[track_caller]
    pub fn stop(&self) -> impl Future<Output = Result> {
        let doing = self.begin("stop()", Location::caller());
        async move { doing.done(self.shared.bed.with_nfs(|server| server.stop()).await) }
    }

    /// Starts the server again.
    #[track_caller]
    pub fn start(&self) -> impl Future<Output = Result> {
        let doing = self.begin("start()", Location::caller());
        async move { doing.done(self.shared.bed.with_nfs(|server| server.start_again()).await) }
    }

    /// Withdraws the export: its handles become stale.
    #[track_caller]
    pub fn unexport(&self) -> impl Future<Output = Result> {
        let doing = self.begin("unexport()", Location::caller());
        async move { doing.done(self.shared.bed.with_nfs(|server| server.unexport()).await) }
    }

    /// Exports the directory again.
    #[track_caller]
    pub fn export(&self) -> impl Future<Output = Result> {
        let doing = self.begin("export()", Location::caller());
        async move { doing.done(self.shared.bed.with_nfs(|server| server.export()).await) }
    }

    /// Makes the export accessible to its owner only, and a node's root the user `nobody` (`root_squash`).
    #[track_caller]
    pub fn squash_root(&self, owner: u32) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("squash_root({owner})"), Location::caller());
        async move { doing.done(self.shared.bed.with_nfs(move |server| server.squash_root(owner)).await) }
    }

    /// Puts a file into the export, on the server's side, where no client has seen it.
    #[track_caller]
    pub fn puts(&self, file: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("puts(\"{file}\")"), Location::caller());
        ready(doing.done(self.shared.bed.put_on_server(file, text)))
    }

    /// Checks that a file is in the export, on the server's side.
    #[track_caller]
    pub fn has(&self, file: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("has(\"{file}\")"), Location::caller());
        ready(doing.done(self.shared.bed.server_has(file, text)))
    }

    fn begin(&self, step: &str, location: &Location<'_>) -> Doing {
        self.shared.begin(&format!("server.{step}"), location)
    }
}

impl Pod {
    /// Tries to read a file below a volume's path, as root of the node, which fails just so.
    #[track_caller]
    pub fn cannot_read(&self, path: &str, how: ReadError) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("cannot_read(\"{path}\")"), Location::caller());
        let errno = match how {
            ReadError::Stale => Errno::ESTALE,
            ReadError::GivenUp => Errno::EIO,
            ReadError::Denied => Errno::EACCES,
        };
        async move { doing.done(self.shared.bed.read_fails(&self.spec, path, errno).await) }
    }

    /// Waits a moment, in which it does not get its volumes.
    #[track_caller]
    pub fn is_refused(&self) -> impl Future<Output = Result> {
        let doing = self.begin("is_refused()", Location::caller());
        async move { doing.done(self.shared.bed.mount_is_refused(&self.spec.name).await) }
    }

    /// Begins to read a file, and checks that the server does not answer.
    #[track_caller]
    pub fn waits_for(&self, path: &str) -> impl Future<Output = Result<Reading>> {
        let doing = self.begin(&format!("waits_for(\"{path}\")"), Location::caller());
        async move {
            let bed = &self.shared.bed;
            let mut handle = doing.done(bed.begin_reading(&self.spec, path))?;
            doing.done(bed.is_held(&mut handle, path).await)?;
            Ok(Reading { pod: self.clone(), path: path.to_owned(), handle })
        }
    }
}

impl Reading {
    /// Waits until the file answers, and compares it.
    #[track_caller]
    pub fn ends_with(self, text: &str) -> impl Future<Output = Result> {
        let doing = self.pod.begin(&format!("waits_for(\"{}\").ends_with()", self.path), Location::caller());
        async move {
            let Self { pod, path, handle } = self;
            doing.done(pod.shared.bed.end_reading(&pod.spec, &path, text, handle).await)
        }
    }
}
