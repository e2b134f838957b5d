//! Asking a driver what it can do, by starting it once.

use harness::sandbox::Sandbox;

use super::message::{Abilities, Orders, Refusal};

pub(super) async fn ask(_orders: &Orders, _sandbox: &Sandbox) -> Result<Abilities, Refusal> {
    Err(Refusal::ours(&anyhow::anyhow!("no driver can be started yet")))
}
