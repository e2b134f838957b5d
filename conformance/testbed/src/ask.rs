//! Asking a driver what it can do, by starting it once.

use harness::api::AccessMode;
use harness::cluster::{Cluster, ProvisionError, Provisioner, VolumeRequest};
use harness::driver::{Driver, DriverError};
use harness::journal::Journal;
use harness::proxy::{Proxy, ProxyOptions};
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use tonic::Code;

use crate::failure::chain;
use crate::foreign::{self, Foreign};
use crate::limits;
use crate::message::{Abilities, Orders, Refusal};
use crate::scene::driver_options;

/// Starts the driver, asks it, and lets it end.
pub async fn ask(orders: &Orders, sandbox: &Sandbox) -> Result<Abilities, Refusal> {
    let layout = sandbox.layout();
    // Nothing of this is told to anybody; a driver wants a journal to be started in.
    let journal = Journal::new(Symbols::new(layout.clone()), None);
    let cgroup = limits::of_driver(orders, sandbox);
    let options = driver_options(&orders.manifest, &layout, &orders.directory, cgroup);
    let mut driver =
        Driver::start(options, journal.clone()).await.map_err(|error| Refusal::of_driver(&error))?;
    let answer = questions(&driver, orders, sandbox, journal).await.map_err(|chain| {
        let log = driver.log_tail(10);
        Refusal { chain, hint: None, log, driver: true }
    });
    driver.terminate(orders.manifest.call_timeout()).await;
    answer
}

/// Everything a need can depend on and no capability says.
async fn questions(
    driver: &Driver,
    orders: &Orders,
    sandbox: &Sandbox,
    journal: Journal,
) -> Result<Abilities, Vec<String>> {
    let settings = &driver.manifest().volume;
    let lacking = |said: Option<bool>, key: &str| {
        (said == Some(false)).then(|| format!("the manifest says that there are none (`{key} = false`)"))
    };
    let mut abilities = Abilities {
        says: driver.capabilities().clone(),
        no_block: lacking(settings.block, "block"),
        no_filesystem: lacking(settings.file_system, "file_system"),
        ..Abilities::default()
    };
    if !abilities.creates() {
        // What exists is taken as the manifest describes it.
        return Ok(abilities);
    }
    let foreign = Foreign::of(orders).map_err(|refusal| refusal.chain)?;
    let sockets = ProxyOptions {
        listen: sandbox.layout().csi_socket(&abilities.says.name),
        driver: driver.socket().to_owned(),
        controller: orders.manifest.controller_socket.clone(),
        ledger: foreign.as_ref().map(Foreign::ledger),
    };
    let proxy = Proxy::serve(sockets, journal.clone()).map_err(|error| chain(&error))?;
    let channel = proxy.channel().map_err(|error| chain(&error))?;
    let cluster = Cluster::new(journal);
    let provisioner = Provisioner::new(cluster, channel, driver.manifest().clone(), abilities.says.clone())
        .tagged(foreign::tag(orders, sandbox));
    let plain = |name: &str| VolumeRequest::new(name, driver.manifest());
    if settings.file_system.is_none() {
        abilities.no_filesystem = refused(&provisioner, plain("file-system")).await?;
    }
    if settings.block.is_none() {
        let block = VolumeRequest { block: true, mount_options: vec![], ..plain("block") };
        abilities.no_block = refused(&provisioner, block).await?;
    }
    if !abilities.shares_on_a_node() && abilities.no_filesystem.is_none() {
        let access_modes = vec![AccessMode::ReadWriteMany];
        abilities.no_shared =
            refused(&provisioner, VolumeRequest { access_modes, ..plain("shared") }).await?;
    }
    Ok(abilities)
}

/// Why the driver makes no such volume, if it does not. One that it makes is deleted again.
async fn refused(provisioner: &Provisioner, wanted: VolumeRequest) -> Result<Option<String>, Vec<String>> {
    let Err(error) = provisioner.provision(&wanted).await else {
        return provisioner.delete(&wanted.name).await.map(|()| None).map_err(|error| chain(&error));
    };
    match &error {
        // With these a driver says that it cannot do this at all, whatever else it is asked for.
        ProvisionError::Create { source, .. }
            if matches!(source.code(), Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange) =>
        {
            let what = wanted.name.replace('-', " ");
            Ok(Some(format!("CreateVolume refuses {what} volumes: {}", source.message())))
        }
        _ => Err(chain(&error)),
    }
}

impl Refusal {
    /// A driver that cannot be tested.
    pub fn of_driver(error: &DriverError) -> Self {
        let (hint, log) = (error.hint().map(str::to_owned), error.tail().to_vec());
        Self { chain: chain(error), hint, log, driver: true }
    }
}
