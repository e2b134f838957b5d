//! A complete CSI driver that does as told, also when told to misbehave.
//!
//! Read it from the outside in. `command` is the command line, `server` puts the services on their socket. The
//! services are `identity`, `controller`, `group`, `metadata` and `node`; each call is checked by `validate`, claims what it works on
//! in `in_flight`, writes its intent into the books ([`books`], kept by `journal`), acts through `kernel`, and writes
//! down that it has finished. A driver that is killed anywhere in between undoes what was not finished when it starts
//! again (`node::recover`).
//!
//! Beside it lives a second driver, `hostpath`, which is as the one of the recordings was, and nothing else.
//!
//! Tests steer it from two sides: [`control`] orders faults and reads the books of a running driver, and a
//! [`Sabotage`] makes it break one promise for as long as it runs.

mod ability;
pub mod books;
mod command;
pub mod control;
mod controller;
mod driver;
mod fault;
mod group;
mod hostpath;
mod identity;
mod in_flight;
mod inline;
mod journal;
mod kernel;
mod metadata;
mod node;
mod sabotage;
mod server;
mod sweep;
mod topology;
mod validate;

pub use ability::Ability;
pub use command::main;
pub use sabotage::{Sabotage, UnknownSabotage};

/// Runs blocking work to its end, whatever becomes of the caller.
async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, tonic::Status> + Send + 'static,
) -> Result<tonic::Response<T>, tonic::Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map(tonic::Response::new),
        Err(error) => Err(tonic::Status::internal(format!("the driver panicked: {error}"))),
    }
}

/// Dies as a driver dies that is killed: without a chance to tidy up.
fn die() -> ! {
    // Cannot fail: a process may always signal itself.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    std::process::abort()
}
