//! A complete CSI driver for tests, which can be ordered to misbehave.
//!
//! Read it from the outside in. `command` is the command line, `server` binds the services to their sockets. The
//! services are `identity`, `controller`, `group`, `metadata` and `node`. Each call is checked by `validate`, claims
//! its volume in `in_flight`, records its intent in the books ([`books`], kept by `journal`), acts through `kernel`,
//! and records that it has finished. A driver that was killed in between undoes the unfinished calls when it starts
//! again (`node::recover`).
//!
//! `hostpath` is a second driver, which behaves like csi-driver-host-path in the recorded traces.
//!
//! Tests steer the driver in two ways: [`control`] orders faults and reads the books of a running driver, and a
//! [`Sabotage`] makes it break one promise for as long as it runs.

mod ability;
pub mod books;
mod command;
pub mod control;
mod controller;
mod daemon;
mod driver;
mod fault;
mod garbage;
mod group;
mod hostpath;
mod identity;
mod in_flight;
mod inline;
mod journal;
mod kernel;
mod local_file;
mod metadata;
mod node;
mod sabotage;
mod server;
mod size;
mod sweep;
mod topology;
mod validate;

pub use ability::Ability;
pub use command::main;
pub use sabotage::{Sabotage, UnknownSabotage};

/// Runs blocking work to its end, also if the caller's future is dropped.
async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, tonic::Status> + Send + 'static,
) -> Result<tonic::Response<T>, tonic::Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map(tonic::Response::new),
        Err(error) => Err(tonic::Status::internal(format!("the driver panicked: {error}"))),
    }
}

/// Kills this process with `SIGKILL`.
fn die() -> ! {
    // A process may always signal itself.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    std::process::abort()
}
