//! The error of a step: the party at fault, with its causes.

use std::error::Error;

use harness::driver::DriverError;
use harness::node::NodeError;
use harness::testbed::TestbedError;

use super::sentence;
use crate::failure::{What, chain};

/// The error of a step of a case.
#[derive(Debug)]
pub(crate) enum StepError {
    /// An expectation of the case is not met.
    Broken(Vec<String>),
    /// The suite could not carry out the step.
    Ours(Vec<String>),
    /// The machine lacks a resource: its name and remedy, then the consequences.
    Environment(Vec<String>),
    /// The driver broke the promise `contract`: by its answer to `method`, or by no answer if that is empty.
    Promise { contract: &'static str, method: String, cause: String },
}

/// The promise that a driver starts again after it was ended.
pub(crate) const STARTS_AGAIN: &str = "DRV-133";

impl StepError {
    pub(crate) fn into_cause(self) -> What {
        match self {
            Self::Broken(chain) => What::Broken { chain, seen: None },
            Self::Ours(chain) => What::Ours(chain),
            Self::Environment(chain) => What::Environment(chain),
            Self::Promise { contract, method, cause } => What::Promise { contract, method, cause },
        }
    }

    pub(crate) fn ours(error: &(dyn Error + 'static)) -> Self {
        Self::Ours(chain(error))
    }

    pub(crate) fn of_testbed(error: &TestbedError) -> Self {
        match error {
            TestbedError::Driver(error @ DriverError::Overloaded { .. }) => Self::Environment(chain(error)),
            TestbedError::Driver(error) if error.is_of_the_driver() => {
                let cause =
                    format!("The driver was ended and does not start again: {}.", chain(error).join(": "));
                Self::Promise { contract: STARTS_AGAIN, method: String::new(), cause }
            }
            TestbedError::Driver(error) => Self::Broken(chain(error)),
            TestbedError::Refused(why) => {
                Self::Broken(vec!["The node refuses to register the driver.".to_owned(), why.clone()])
            }
            error => Self::ours(error),
        }
    }

    /// The error with `reason` as its first cause. The lack of a resource stays in front: it may have led to `reason`.
    pub(super) fn because(self, reason: String) -> Self {
        match self {
            Self::Broken(mut chain) => {
                chain.insert(0, reason);
                Self::Broken(chain)
            }
            Self::Environment(mut chain) => {
                chain.insert(chain.len().min(1), reason);
                Self::Environment(chain)
            }
            ours @ (Self::Ours(_) | Self::Promise { .. }) => ours,
        }
    }

    /// A refusal of the node concerns volumes. Any other error is one of the connection to the node, so a fault of the
    /// suite.
    pub(crate) fn of_node(error: &NodeError) -> Self {
        match error {
            NodeError::Refused(why) => Self::Broken(vec![sentence(why)]),
            _ => Self::ours(error),
        }
    }
}
