//! Services.

use api::object::Meta;
use api::service::{Service, ServicePort};
use k8s_openapi::api::core::v1 as core;

use super::Bad;

pub(super) fn service(service: core::Service, meta: Meta) -> Result<Service, Bad> {
    let spec = service.spec.unwrap_or_default();
    let address = match spec.type_.as_deref() {
        // An external name has no address in the cluster.
        Some("ExternalName") => Service::NO_ADDRESS.to_owned(),
        _ => spec.cluster_ip.unwrap_or_default(),
    };
    let ports = spec.ports.unwrap_or_default().into_iter().map(|port| ServicePort {
        name: port.name.unwrap_or_default(),
        number: port.port,
        protocol: port.protocol.unwrap_or_else(|| "TCP".to_owned()),
    });
    Ok(Service { meta, address, ports: ports.collect() })
}
