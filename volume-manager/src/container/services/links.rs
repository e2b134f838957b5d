//! The variables of a service: those of Kubernetes, and those of Docker's links. Pure.

use api::Service;

/// The variables, in no order.
pub(super) fn of(service: &Service) -> Vec<(String, String)> {
    let name = in_capitals(&service.meta.name);
    let address = &service.address;
    let mut variables = vec![(format!("{name}_SERVICE_HOST"), address.clone())];
    for (index, port) in service.ports.iter().enumerate() {
        let number = port.number.to_string();
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let url = format!("{}://{}:{number}", protocol.to_lowercase(), in_url(address));
        // The service's variables without a port use its first.
        if index == 0 {
            variables.push((format!("{name}_SERVICE_PORT"), number.clone()));
            variables.push((format!("{name}_PORT"), url.clone()));
        }
        if !port.name.is_empty() {
            variables.push((format!("{name}_SERVICE_PORT_{}", in_capitals(&port.name)), number.clone()));
        }
        let link = format!("{name}_PORT_{number}_{}", protocol.to_uppercase());
        variables.extend([
            (format!("{link}_PROTO"), protocol.to_lowercase()),
            (format!("{link}_PORT"), number),
            (format!("{link}_ADDR"), address.clone()),
            (link, url),
        ]);
    }
    variables
}

/// A service's name in a variable's name.
fn in_capitals(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

/// An address for a URL, before its port.
fn in_url(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}
