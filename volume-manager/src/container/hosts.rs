//! The pod's names and its hosts file. Writes `pods/<uid>/etc-hosts`.

use std::path::Path;

use api::Pod;
use host::{Host, HostError};
use plugin_api::paths::Paths;

use super::mounts::{Mount, Propagation, Source};
use super::{ContainerError, Request};

/// The path of the hosts file in a container.
const PATH: &str = "/etc/hosts";

/// The names of a pod on its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub host: String,
    /// The domain; empty for none.
    pub domain: String,
}

/// The kernel's limit for the length of a host name.
const LONGEST: usize = 64;

impl Names {
    /// The names of a pod: `hostnameOverride` without a domain, else its `hostname`, else its name, cut to 63
    /// letters.
    pub fn of(pod: &Pod, cluster_domain: &str) -> Result<Self, ContainerError> {
        if let Some(name) = &pod.hostname_override {
            let fine = name.len() <= LONGEST && name.split('.').all(is_label);
            return match fine {
                true => Ok(Self { host: name.clone(), domain: String::new() }),
                false => Err(ContainerError::Hostname("HostnameOverride", name.clone(), "subdomain")),
            };
        }
        for (field, name) in [("Hostname", &pod.hostname), ("Subdomain", &pod.subdomain)] {
            if !name.is_empty() && !is_label(name) {
                return Err(ContainerError::Hostname(field, name.clone(), "label"));
            }
        }
        let host = if pod.hostname.is_empty() { &pod.meta.name } else { &pod.hostname };
        let host: String = match host.char_indices().nth(63) {
            Some((end, _)) => host[..end].trim_end_matches(['-', '.']).to_owned(),
            None => host.clone(),
        };
        let domain = match pod.subdomain.as_str() {
            "" => String::new(),
            subdomain => format!("{subdomain}.{}.svc.{cluster_domain}", pod.meta.namespace),
        };
        Ok(Self { host, domain })
    }
}

/// Whether a name is one label of the DNS: small letters, digits and dashes, with no dash at its ends.
fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| plain(byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The mount of the hosts file, written anew; `None` if the container brings its own or the pod has no
/// address to write.
pub(super) async fn mount(
    host: &dyn Host,
    paths: &Paths,
    request: &Request<'_>,
    names: &Names,
) -> Result<Option<Mount>, ContainerError> {
    let pod = request.pod;
    let brings_its_own = request.container.mounts.iter().any(|mount| mount.path == PATH);
    if brings_its_own || (pod.ips.is_empty() && !pod.host_network) {
        return Ok(None);
    }
    let path = paths.etc_hosts(&pod.uid());
    let written = write(host, &path, pod, names, &request.node.hosts).await;
    written.map_err(ContainerError::Hosts)?;
    Ok(Some(Mount {
        name: "k8s-managed-etc-hosts".to_owned(),
        source: Source::Path(path),
        container_path: PATH.into(),
        read_only: false,
        recursive_read_only: false,
        propagation: Propagation::Private,
        selinux_relabel: true,
    }))
}

async fn write(
    host: &dyn Host,
    path: &Path,
    pod: &Pod,
    names: &Names,
    node_hosts: &Path,
) -> Result<(), HostError> {
    let content = match pod.host_network {
        true => of_node(pod, &host.read_file(node_hosts).await?),
        false => of_pod(pod, names).into_bytes(),
    };
    host.write_file(path, &content, 0o644).await?;
    host.chmod(path, 0o644).await
}

fn of_node(pod: &Pod, node: &[u8]) -> Vec<u8> {
    let mut content = b"# Kubernetes-managed hosts file (host network).\n".to_vec();
    content.extend_from_slice(node);
    content.extend_from_slice(aliases(pod).as_bytes());
    content
}

fn of_pod(pod: &Pod, names: &Names) -> String {
    let mut content = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    let Names { host, domain } = names;
    for ip in &pod.ips {
        content += &match domain.as_str() {
            "" => format!("{ip}\t{host}\n"),
            domain => format!("{ip}\t{host}.{domain}\t{host}\n"),
        };
    }
    content + &aliases(pod)
}

fn aliases(pod: &Pod) -> String {
    if pod.host_aliases.is_empty() {
        return String::new();
    }
    let mut content = String::from("\n# Entries added by HostAliases.\n");
    for alias in &pod.host_aliases {
        content += &format!("{}\t{}\n", alias.ip, alias.names.join("\t"));
    }
    content
}

#[cfg(test)]
mod tests {
    use api::Meta;
    use api::pod::HostAlias;
    use expect_test::expect;

    use super::*;

    fn pod() -> Pod {
        let aliases = vec![HostAlias { ip: "10.1.1.1".into(), names: vec!["a".into(), "b".into()] }];
        Pod {
            meta: Meta::named("ns", "web"),
            ips: vec!["10.0.0.7".into(), "fd00::7".into()],
            host_aliases: aliases,
            ..Pod::default()
        }
    }

    #[test]
    fn the_pods_own_file_ends_with_its_aliases() {
        let mut pod = pod();
        pod.subdomain = "sub".into();
        let names = Names::of(&pod, "cluster.local").unwrap();
        expect![[r#"
            # Kubernetes-managed hosts file.
            127.0.0.1	localhost
            ::1	localhost ip6-localhost ip6-loopback
            fe00::0	ip6-localnet
            fe00::0	ip6-mcastprefix
            fe00::1	ip6-allnodes
            fe00::2	ip6-allrouters
            10.0.0.7	web.sub.ns.svc.cluster.local	web
            fd00::7	web.sub.ns.svc.cluster.local	web

            # Entries added by HostAliases.
            10.1.1.1	a	b
        "#]]
        .assert_eq(&of_pod(&pod, &names));
        pod.subdomain.clear();
        let plain = of_pod(&pod, &Names::of(&pod, "cluster.local").unwrap());
        assert!(plain.contains("\n10.0.0.7\tweb\nfd00::7\tweb\n"), "{plain}");
    }

    #[test]
    fn the_nodes_file_is_copied_word_for_word() {
        let content = of_node(&pod(), b"1.2.3.4 node\n");
        let text = String::from_utf8(content).unwrap();
        assert!(
            text.starts_with("# Kubernetes-managed hosts file (host network).\n1.2.3.4 node\n\n# Entries")
        );
    }

    #[test]
    fn a_host_name_has_at_most_63_letters_and_ends_with_one() {
        let mut pod = pod();
        pod.meta.name = format!("{}-.tail", "x".repeat(61));
        assert_eq!(Names::of(&pod, "c").unwrap().host, "x".repeat(61));
        pod.hostname = "asked-for".into();
        let names = Names::of(&pod, "c").unwrap();
        assert_eq!(names, Names { host: "asked-for".into(), domain: String::new() });
    }

    #[test]
    fn a_name_that_overrides_has_no_domain() {
        let mut pod = pod();
        (pod.hostname, pod.subdomain) = ("asked-for".into(), "sub".into());
        pod.hostname_override = Some("web.example.org".into());
        let names = Names::of(&pod, "cluster.local").unwrap();
        assert_eq!(names, Names { host: "web.example.org".into(), domain: String::new() });
        let text = of_pod(&pod, &names);
        assert!(text.contains("\n10.0.0.7\tweb.example.org\nfd00::7\tweb.example.org\n\n"), "{text}");
    }

    #[test]
    fn names_the_dns_does_not_know_are_refused() {
        type Field = fn(&mut Pod) -> &mut String;
        let fields: [(Field, &str, &str); 3] = [
            (|pod| &mut pod.hostname, "Hostname", "label"),
            (|pod| &mut pod.subdomain, "Subdomain", "label"),
            (|pod| pod.hostname_override.get_or_insert_default(), "HostnameOverride", "subdomain"),
        ];
        let long = "x".repeat(65);
        for (field, name, kind) in fields {
            let with = |value: &str| {
                let mut pod = pod();
                value.clone_into(field(&mut pod));
                Names::of(&pod, "c").map_err(|error| error.to_string())
            };
            for bad in ["-a", "a-", "A", "a..b", "a_b", "a\n1.2.3.4 b", &long] {
                let text = format!("pod {name} {bad:?} is not a valid DNS {kind}");
                assert_eq!(with(bad), Err(text));
            }
            for (fine, label) in [("a-1", true), ("a.b", false)] {
                assert_eq!(with(fine).is_ok(), label || kind == "subdomain", "{name} {fine}");
            }
        }
    }
}
