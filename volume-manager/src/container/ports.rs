//! The ports of a container, for its network. Pure.

use std::collections::BTreeSet;

use api::runtime::Port;

/// The mapped ports: the first of each name, and the first of equal ports without a name.
pub(super) fn of(ports: &[Port]) -> Vec<Port> {
    let mut names = BTreeSet::new();
    let name = |port: &Port| match port.name.as_str() {
        "" => format!("{}-{}:{}:{}", port.protocol, port.host_ip, port.container_port, port.host_port),
        name => name.to_owned(),
    };
    ports.iter().filter(|port| names.insert(name(port))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_port_of_the_same_name_is_left_out() {
        let port = |name: &str, container_port, host_ip: &str| Port {
            name: name.to_owned(),
            container_port,
            host_ip: host_ip.to_owned(),
            protocol: "TCP".to_owned(),
            ..Port::default()
        };
        let ports = [
            port("http", 80, ""),
            port("http", 8080, ""),
            port("", 443, "10.0.0.1"),
            port("", 443, "10.0.0.1"),
            port("", 443, "fd00::1"),
        ];
        assert_eq!(of(&ports), [ports[0].clone(), ports[2].clone(), ports[4].clone()]);
    }
}
