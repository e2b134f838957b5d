//! Puts up the testbed of a case by its orders.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use contracts::event::{Lifecycle, Role};
use harness::cgroup::Cgroup;
use harness::driver::{DriverError, PreparationError};
use harness::journal::{Claiming, Journal, Witness};
use harness::loop_device::table;
use harness::manifest::{Manifest, Secrets, Sensitive};
use harness::masks::SHORTEST;
use harness::observe::MountWatch;
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use harness::testbed::{Builder, NodeRoot, Testbed, TestbedError};

use super::disks::Disks;
use super::{Bed, Made, nfs, other_node};
use crate::failure::chain;
use crate::foreign::{self, Foreign};
use crate::limits::{self, DeviceGroups};
use crate::message::{Abilities, Orders, Refusal};

impl Bed {
    /// Puts everything up, and waits until the node has taken the driver.
    pub async fn put_up(orders: &Orders, sandbox: &Sandbox, abilities: &Abilities) -> Result<Self, Refusal> {
        // The driver of an earlier case may have left one read-only, which is no fault of this one.
        table::free_from_read_only();
        let foreign = Foreign::of(orders)?;
        let journal = journal(orders, sandbox, foreign.as_ref())?;
        let cgroup = limits::of_driver(orders, sandbox);
        let limit = orders.timeout.mul_f64(0.5);
        let builder = builder(orders, sandbox, journal, foreign.as_ref(), cgroup.clone());
        let builder = builder.attach_after(Duration::ZERO).patience(limit);
        let testbed = builder.put_up().await.map_err(|error| Refusal::of_testbed(&error))?;
        let may_have_other = orders.manifest.has_other_node() || orders.manifest.has_nodes_apart();
        let other_root = may_have_other.then(|| {
            let layout = testbed.layout.beside(other_node::NAME, true);
            NodeRoot::mount(&layout).map_err(|error| Refusal::of_testbed(&error))
        });
        let devices_of_driver = [sandbox.devices(), testbed.prepared.disks()].concat();
        let bed = Self {
            containers: RefCell::default(),
            device_groups: DeviceGroups::of(orders, sandbox),
            beginning: testbed.journal.length(),
            testbed,
            _other_root: other_root.transpose()?,
            cgroup,
            abilities: abilities.clone(),
            foreign,
            secrets: secrets(&orders.manifest)?,
            made: Made::default(),
            other: OnceCell::new(),
            nfs: nfs::Nfs::new(orders.spoil),
            limit,
            known_dead_ends: orders.dead_ends.clone(),
            disks: Disks::default(),
            fuse: RefCell::default(),
            failing_state: RefCell::default(),
            ownership: sandbox.ownership(),
            machine: RefCell::default(),
            directory: orders.directory.clone(),
            seed: orders.seed,
            thorough: orders.thorough,
            devices_of_driver,
        };
        bed.remember_driver();
        Ok(bed)
    }
}

/// A journal whose witness watches from now on.
fn journal(orders: &Orders, sandbox: &Sandbox, foreign: Option<&Foreign>) -> Result<Journal, Refusal> {
    let layout = sandbox.layout();
    let watch = MountWatch::start().map_err(|error| Refusal::ours(&error))?;
    let driver_is_outside = foreign.is_some() && foreign::names_processes(&watch);
    let witness: Box<dyn Witness> = match foreign {
        Some(foreign) => foreign.witness(watch, layout.root()),
        None => Box::new(Claiming::new(watch, sandbox)),
    };
    let journal = Journal::new(Symbols::new(layout), Some(witness));
    journal.with_actors(|actors| actors.driver_is_outside = driver_is_outside);
    // Kept while the case runs, for a worker that is killed. A worker that ends writes the trace anew, with symbols.
    journal.keep(&orders.directory.join("trace.jsonl"), None).map_err(|error| Refusal::ours(&error))?;
    if orders.cuts > 0 {
        // The earlier node ended with its machine. Its records are on the disk, and its events are not in this trace.
        journal.process(Role::Node, Lifecycle::Kill, None);
    }
    Ok(journal)
}

/// A testbed in this sandbox, with the driver that the orders name.
pub(crate) fn builder(
    orders: &Orders,
    sandbox: &Sandbox,
    journal: Journal,
    foreign: Option<&Foreign>,
    cgroup: Option<Arc<Cgroup>>,
) -> Builder {
    let (manifest, logs) = (orders.manifest.clone(), orders.directory.clone());
    Testbed::builder(journal, sandbox.layout().with_other(other_node::NAME), manifest, logs)
        .cgroup(cgroup)
        .cleaned_by(sandbox.ledger())
        .outlived(foreign.map(Foreign::ledger), foreign::tag(orders, sandbox))
}

/// Every secret value of the manifest.
fn secrets(manifest: &Manifest) -> Result<Vec<Sensitive<String>>, Refusal> {
    let mut secrets = Vec::new();
    for file in manifest.all_secrets().flat_map(Secrets::files) {
        let values = Secrets::load(Some(file)).map_err(|error| Refusal::ours(&error))?;
        secrets.extend(values.into_values().filter(|value| value.reveal().len() >= SHORTEST));
    }
    Ok(secrets)
}

impl Refusal {
    pub(crate) fn of_testbed(error: &TestbedError) -> Self {
        match error {
            TestbedError::Driver(error) => Self::of_driver(error),
            TestbedError::Refused(why) => {
                let chain = vec!["The node refuses to register the driver.".to_owned(), why.clone()];
                Self { chain, hint: None, log: vec![], driver_has_ended: false }
            }
            TestbedError::Preparation(error) => Self::of_preparation(error),
            TestbedError::Fixture(error) => Self { hint: error.hint(), ..Self::ours(error) },
            error => Self::ours(error),
        }
    }

    /// A command of the manifest that has failed, in which no driver has a part.
    pub fn of_preparation(error: &PreparationError) -> Self {
        let (hint, log) = (Some(error.hint().to_owned()), error.tail().to_vec());
        Self { chain: chain(error), hint, log, driver_has_ended: false }
    }

    /// A driver that cannot be tested.
    fn of_driver(error: &DriverError) -> Self {
        let (hint, log) = (error.hint().map(str::to_owned), error.tail().to_vec());
        Self { chain: chain(error), hint, log, driver_has_ended: error.has_ended() }
    }
}
