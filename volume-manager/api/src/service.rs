//! Services: the fields that become variables of containers.

use serde::{Deserialize, Serialize};

use super::object::Meta;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    pub meta: Meta,
    /// The service's address in the cluster; empty until the API server has assigned one, and `None` for a service without
    /// one.
    pub address: String,
    /// Its ports, in order.
    pub ports: Vec<ServicePort>,
}

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

    /// Whether the service has an address of its own.
    pub fn has_address(&self) -> bool {
        !self.address.is_empty() && self.address != Self::NO_ADDRESS
    }
}
