//! The parameters of a storage class: those that are the driver's, and those that tell the provisioner which secrets
//! and which file system its volumes have.

use std::collections::BTreeMap;

use api::names::Namespaced;
use api::{Claim, Class};

/// Parameters with this prefix are the provisioner's, and no driver sees them.
const PREFIX: &str = "csi.storage.k8s.io/";

/// A secret that a class names, by what its parameters begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretOf {
    Provisioner,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
}

impl SecretOf {
    fn prefix(self) -> &'static str {
        match self {
            Self::Provisioner => "provisioner",
            Self::ControllerPublish => "controller-publish",
            Self::NodeStage => "node-stage",
            Self::NodePublish => "node-publish",
            Self::ControllerExpand => "controller-expand",
            Self::NodeExpand => "node-expand",
        }
    }

    /// Whether its template may name the claim and its annotations: those that only the volume's owner uses.
    fn knows_claim(self) -> bool {
        !matches!(self, Self::Provisioner)
    }
}

/// A class cannot be used for a claim.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadClass {
    #[error("either name and namespace for {0} secrets specified, Both must be specified")]
    HalfSecret(&'static str),
    #[error("error resolving value {template:?}: invalid tokens: [{token:?}]")]
    Token { template: String, token: String },
}

/// The parameters that the driver sees.
pub(super) fn of_driver(class: &Class) -> BTreeMap<String, String> {
    let others = class.parameters.iter().filter(|(key, _)| !key.starts_with(PREFIX));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The file system that the class asks for; empty for the driver's choice.
pub(super) fn fs_type(class: &Class) -> String {
    class.parameters.get(&format!("{PREFIX}fstype")).cloned().unwrap_or_default()
}

/// The secret that a class names for some calls, with the names of the claim and the volume filled in.
pub(super) fn secret(
    class: &Class,
    of: SecretOf,
    claim: &Claim,
    volume: &str,
) -> Result<Option<Namespaced>, BadClass> {
    let value = |end: &str| class.parameters.get(&format!("{PREFIX}{}-secret-{end}", of.prefix()));
    let (name, namespace) = match (value("name"), value("namespace")) {
        (Some(name), Some(namespace)) => (name, namespace),
        (None, None) => return Ok(None),
        _ => return Err(BadClass::HalfSecret(of.prefix())),
    };
    let names = |token: &str| match token {
        "pv.name" => Some(volume.to_owned()),
        "pvc.namespace" => Some(claim.meta.namespace.clone()),
        "pvc.name" => Some(claim.meta.name.clone()),
        _ => None,
    };
    let in_name = |token: &str| {
        let annotation = token.strip_prefix("pvc.annotations['").and_then(|rest| rest.strip_suffix("']"));
        match annotation {
            Some(key) if of.knows_claim() => claim.meta.annotations.get(key).cloned(),
            _ => names(token),
        }
    };
    let in_namespace = |token: &str| names(token).filter(|_| token != "pvc.name");
    Ok(Some(Namespaced::new(resolve(namespace, in_namespace)?, resolve(name, in_name)?)))
}

/// A template with each `${token}` replaced by its value.
fn resolve(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, BadClass> {
    let mut resolved = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((token, after)) = after.split_once('}') else { break };
        let bad = || BadClass::Token { template: template.to_owned(), token: token.to_owned() };
        resolved += before;
        resolved += &value(token).ok_or_else(bad)?;
        rest = after;
    }
    Ok(resolved + rest)
}

#[cfg(test)]
mod tests {
    use api::Meta;

    use super::*;

    fn class(parameters: &[(&str, &str)]) -> Class {
        let parameters = parameters.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        Class { parameters, ..Class::default() }
    }

    fn claim() -> Claim {
        let mut meta = Meta::named("team", "data");
        meta.annotations.insert("key".to_owned(), "mine".to_owned());
        Claim { meta, ..Claim::default() }
    }

    #[test]
    fn parameters_of_the_provisioner_are_kept_from_the_driver() {
        let class = class(&[("tier", "gold"), ("csi.storage.k8s.io/fstype", "xfs")]);
        assert_eq!(of_driver(&class), BTreeMap::from([("tier".to_owned(), "gold".to_owned())]));
        assert_eq!(fs_type(&class), "xfs");
    }

    #[test]
    fn secret_is_named_after_claim_and_volume() {
        let of = |of: SecretOf, name: &str, namespace: &str| {
            let key = |end: &str| format!("csi.storage.k8s.io/{}-secret-{end}", of.prefix());
            secret(&class(&[(&key("name"), name), (&key("namespace"), namespace)]), of, &claim(), "pv-1")
        };
        let rows = [
            (SecretOf::NodeStage, "${pvc.name}-${pv.name}", "${pvc.namespace}", Ok("team/data-pv-1")),
            (SecretOf::NodeStage, "${pvc.annotations['key']}", "fixed", Ok("fixed/mine")),
            (SecretOf::Provisioner, "${pvc.name}", "ns", Ok("ns/data")),
            (SecretOf::Provisioner, "${pvc.annotations['key']}", "ns", Err("pvc.annotations['key']")),
            (SecretOf::NodeStage, "x", "${pvc.name}", Err("pvc.name")),
            (SecretOf::NodeStage, "${pvc.nam}", "ns", Err("pvc.nam")),
        ];
        for (kind, name, namespace, expected) in rows {
            match (of(kind, name, namespace), expected) {
                (Ok(Some(named)), Ok(expected)) => {
                    assert_eq!(format!("{}/{}", named.namespace, named.name), expected);
                }
                (Err(BadClass::Token { token, .. }), Err(expected)) => assert_eq!(token, expected),
                (answer, _) => panic!("{name} {namespace}: {answer:?}"),
            }
        }
    }

    #[test]
    fn half_a_secret_is_refused() {
        let class = class(&[("csi.storage.k8s.io/node-stage-secret-name", "x")]);
        assert!(secret(&class, SecretOf::NodeStage, &claim(), "pv").is_err());
        assert_eq!(secret(&class, SecretOf::NodePublish, &claim(), "pv"), Ok(None));
    }
}
