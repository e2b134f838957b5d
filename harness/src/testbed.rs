//! A testbed: driver, proxy, API server, controllers and node, put up in one order and taken down in another.
//!
//! ```standalone_crate
//! use harness::{journal::Journal, manifest::Manifest, observe::MountWatch, sandbox::Sandbox, symbols::Symbols};
//! use harness::{api_server::VolumeRequest, testbed::Testbed};
//!
//! # async fn play(sandbox: &Sandbox, logs: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! let layout = sandbox.layout();
//! let journal = Journal::new(Symbols::new(layout.clone()), Some(Box::new(MountWatch::start()?)));
//! let bed = Testbed::builder(journal, layout, Manifest::fake_csi(&[]), logs.to_owned()).put_up().await?;
//! bed.provisioner.provision(&VolumeRequest::new("data", bed.manifest())).await?;
//! bed.end(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```

mod builder;
mod claims;
mod error;
mod fixtures;
mod other_node;
mod prepared;
mod service_account;
mod surroundings;

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

pub use builder::Builder;
pub use claims::{IS_DEFAULT_CLASS, IS_DEFAULT_GROUP_SNAPSHOT_CLASS, IS_DEFAULT_SNAPSHOT_CLASS};
pub use error::TestbedError;
pub use fixtures::{FixtureError, Fixtures};
pub use other_node::{NodeRoot, OtherNode};
pub use prepared::Prepared;
pub use surroundings::Surroundings;

use crate::driver::Registrar;
use crate::node::{Node, NodeOptions};

/// A node and what surrounds it.
#[derive(Debug)]
pub struct Testbed {
    // Fields are dropped in this order. The node sends requests to all others, so it is dropped first, before one of them
    // could fail to answer. Nothing that it leaves behind then is judged.
    pub node: Node,
    // The announcement of a driver must not outlive the node that it is made to, nor come before it.
    registrar: RefCell<Option<Rc<Registrar>>>,
    surroundings: Surroundings,
}

impl Testbed {
    /// Starts a node in these surroundings. It knows no driver before [`Testbed::announce`].
    ///
    /// # Errors
    /// When the API cannot be served to it, or it does not become ready.
    pub async fn start(mut surroundings: Surroundings, options: NodeOptions) -> Result<Self, TestbedError> {
        // The node reads its objects as soon as it runs.
        surroundings.serve_api()?;
        let node = Node::start(options, surroundings.api_server.clone()).await?;
        Ok(Self { node, registrar: RefCell::default(), surroundings })
    }

    /// Announces the driver to the node, as a registrar in the driver's pod does, and waits for the node's answer.
    ///
    /// # Errors
    /// When the node refuses the driver, or does not look at it in time.
    pub async fn announce(&self) -> Result<(), TestbedError> {
        self.withdraw();
        let name = self.driver_name();
        let socket = self.layout.registration_socket(name);
        let registrar = Registrar::serve(&socket, name, self.proxy().socket(), self.journal.clone())?;
        self.registrar.replace(Some(Rc::new(registrar)));
        self.registered().await
    }

    /// Takes the announcement back: a node that is started now does not find the driver.
    pub fn withdraw(&self) {
        self.registrar.take();
    }

    /// Forgets that the node has answered the announcement: it is about to be started again, and to answer anew.
    pub fn expect_registration(&self) {
        if let Some(registrar) = &*self.registrar.borrow() {
            registrar.expect_again();
        }
    }

    /// Waits for the node's answer to an announcement; nothing where none is made.
    ///
    /// # Errors
    /// When the node refuses the driver, or does not look at it in time.
    pub async fn registered(&self) -> Result<(), TestbedError> {
        let Some(registrar) = self.registrar.borrow().clone() else { return Ok(()) };
        match tokio::time::timeout(self.patience, registrar.registered()).await {
            Ok(answer) => answer.map_err(TestbedError::Refused),
            Err(_) => Err(TestbedError::NotRegistered { within: self.patience }),
        }
    }

    /// Starts a driver that was killed, in a pod of its own again: with another registrar, which announces it.
    ///
    /// # Errors
    /// When it does not start, or the node does not take it.
    pub async fn start_driver(&self) -> Result<(), TestbedError> {
        self.start_driver_unannounced().await?;
        self.announce().await
    }

    /// Ends the node, then the driver, which is asked first and has so much time.
    pub async fn end(&self, within: Duration) {
        // The node is killed first, or it would take the driver for one that crashed. The kernel needs a while to clear
        // up after it, in which the driver can end.
        tokio::join!(self.node.kill(), self.end_driver(within));
    }
}

impl DerefMut for Testbed {
    fn deref_mut(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }
}

impl Deref for Testbed {
    type Target = Surroundings;

    fn deref(&self) -> &Surroundings {
        &self.surroundings
    }
}
