//! Asking a driver what it can do, by starting it once.

use csi_proto::v1::volume_capability::access_mode::Mode;
use harness::driver::{Driver, DriverError, DriverOptions};
use harness::journal::Journal;
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use tonic::Code;

use super::controller::{Controller, ControllerError};
use super::message::{Abilities, Orders, Refusal};
use crate::failure::chain;

/// The node every case plays.
pub(super) const NODE: &str = "node-1";

/// Starts the driver, asks it, and lets it end.
pub(super) async fn ask(orders: &Orders, sandbox: &Sandbox) -> Result<Abilities, Refusal> {
    let layout = sandbox.layout().clone();
    // Nothing of this is told to anybody; a driver wants a journal to be started in.
    let journal = Journal::new(Symbols::new(layout.clone()), None);
    let log = orders.directory.join("driver.log");
    let options = DriverOptions { manifest: orders.manifest.clone(), layout, node: NODE.to_owned(), log };
    let mut driver = Driver::start(options, journal).await.map_err(|error| Refusal::of_driver(&error))?;
    let answer = questions(&driver).await.map_err(|error| {
        let log = driver.log_tail(10);
        Refusal { chain: chain(&error), hint: None, log, driver: true }
    });
    driver.terminate().await;
    answer
}

/// Everything a need can depend on and no capability says.
async fn questions(driver: &Driver) -> Result<Abilities, ControllerError> {
    let mut abilities = Abilities { says: driver.capabilities().clone(), ..Abilities::default() };
    if !abilities.creates() {
        // What exists is taken as the manifest describes it.
        return Ok(abilities);
    }
    let controller = Controller::of(driver)?;
    let asked = |what, block, mode| refused(&controller, what, block, mode);
    abilities.no_filesystem = asked("file-system", false, Mode::SingleNodeWriter).await?;
    abilities.no_block = asked("block", true, Mode::SingleNodeWriter).await?;
    if !abilities.shares_on_a_node() {
        abilities.no_shared = asked("shared", false, Mode::MultiNodeMultiWriter).await?;
    }
    Ok(abilities)
}

/// Why the driver makes no such volume, if it does not. One that it makes is deleted again.
async fn refused(
    controller: &Controller,
    what: &str,
    block: bool,
    mode: Mode,
) -> Result<Option<String>, ControllerError> {
    let error = match controller.create(&format!("volproof-asks-{what}"), block, mode).await {
        Ok(made) => return controller.delete(&made.handle).await.map(|()| None),
        Err(error) => error,
    };
    match error.code() {
        // With these a driver says that it cannot do this at all, whatever else it is asked for.
        Some(Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange) => {
            let why = chain(&error).pop().unwrap_or_default();
            Ok(Some(format!("CreateVolume refuses {} volumes: {why}", what.replace('-', " "))))
        }
        _ => Err(error),
    }
}

impl Refusal {
    /// A driver that cannot be tested.
    pub(super) fn of_driver(error: &DriverError) -> Self {
        let (hint, log) = (error.hint().map(str::to_owned), error.tail().to_vec());
        Self { chain: chain(error), hint, log, driver: true }
    }
}
