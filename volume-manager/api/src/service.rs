//! Services, as far as containers are told of them.

use serde::{Deserialize, Serialize};

use super::object::Meta;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub meta: Meta,
    /// The address in the cluster that stands for all behind it; empty until the API server has given it one, and
    /// `None` for those that have none.
    pub address: String,
    /// Its ports, in order.
    pub ports: Vec<ServicePort>,
}

/// A port of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    /// Its name; empty for none.
    pub name: String,
    pub number: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

impl Service {
    /// The address of a service that has none.
    pub const NO_ADDRESS: &str = "None";

    /// Whether it can be reached by an address of its own.
    pub fn has_address(&self) -> bool {
        !self.address.is_empty() && self.address != Self::NO_ADDRESS
    }
}
