//! The addresses of services that ask for none in particular, as the API server gives them. Touches nothing.

use std::net::Ipv4Addr;
use std::sync::Arc;

use api::{Object, Service};

/// The first address of the range that clusters usually have.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The service with the first address: that of the API itself.
const OF_FIRST: (&str, &str) = ("default", "kubernetes");

/// Gives a new service the next address that no other has.
pub(super) fn give<'a>(object: &mut Object, others: impl Iterator<Item = &'a Object> + Clone) {
    let Object::Service(service) = object else { return };
    if !service.address.is_empty() {
        return;
    }
    let taken = |address: &String| {
        let has = |other: &Object| matches!(other, Object::Service(other) if other.address == *address);
        others.clone().any(has)
    };
    let is_first = (service.meta.namespace.as_str(), service.meta.name.as_str()) == OF_FIRST;
    let begin = FIRST.to_bits() + u32::from(!is_first);
    let free = (begin..).map(|bits| Ipv4Addr::from_bits(bits).to_string()).find(|address| !taken(address));
    Arc::make_mut(service).address = free.unwrap_or_else(|| Service::NO_ADDRESS.to_owned());
}
