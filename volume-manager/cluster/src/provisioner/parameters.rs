//! The parameters of a storage class. Those with the provisioner's prefix name secrets and the file system; the driver
//! gets the others.

use api::names::Namespaced;
use api::{Claim, Class};

use crate::class_parameters::{BadTemplate, PREFIX, resolve};

/// The calls that a secret is for. Each kind has its own pair of parameters in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretKind {
    Provisioner,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
}

impl SecretKind {
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

    /// Whether templates may use the claim's annotations.
    fn allows_annotations(self) -> bool {
        !matches!(self, Self::Provisioner)
    }
}

/// A class cannot be used for a claim.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadClass {
    #[error("either name and namespace for {0} secrets specified, Both must be specified")]
    HalfSecret(&'static str),
    #[error(transparent)]
    Template(#[from] BadTemplate),
}

/// The file system that the class asks for; empty for the driver's choice.
pub(super) fn fs_type(class: &Class) -> String {
    class.parameters.get(&format!("{PREFIX}fstype")).cloned().unwrap_or_default()
}

/// The secret that a class names for one kind of call, with its templates resolved for a claim and its volume.
pub(super) fn secret(
    class: &Class,
    kind: SecretKind,
    claim: &Claim,
    volume: &str,
) -> Result<Option<Namespaced>, BadClass> {
    let value = |end: &str| class.parameters.get(&format!("{PREFIX}{}-secret-{end}", kind.prefix()));
    let (name, namespace) = match (value("name"), value("namespace")) {
        (Some(name), Some(namespace)) => (name, namespace),
        (None, None) => return Ok(None),
        _ => return Err(BadClass::HalfSecret(kind.prefix())),
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
            Some(key) if kind.allows_annotations() => claim.meta.annotations.get(key).cloned(),
            _ => names(token),
        }
    };
    let in_namespace = |token: &str| names(token).filter(|_| token != "pvc.name");
    Ok(Some(Namespaced::new(resolve(namespace, in_namespace)?, resolve(name, in_name)?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::Meta;

    use super::*;
    use crate::class_parameters::of_driver;

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
    fn driver_does_not_get_the_provisioners_parameters() {
        let class = class(&[("tier", "gold"), ("csi.storage.k8s.io/fstype", "xfs")]);
        assert_eq!(of_driver(&class.parameters), BTreeMap::from([("tier".to_owned(), "gold".to_owned())]));
        assert_eq!(fs_type(&class), "xfs");
    }

    #[test]
    fn secret_templates_are_resolved_for_claim_and_volume() {
        let resolved = |kind: SecretKind, name: &str, namespace: &str| {
            let key = |end: &str| format!("csi.storage.k8s.io/{}-secret-{end}", kind.prefix());
            secret(&class(&[(&key("name"), name), (&key("namespace"), namespace)]), kind, &claim(), "pv-1")
        };
        let rows = [
            (SecretKind::NodeStage, "${pvc.name}-${pv.name}", "${pvc.namespace}", Ok("team/data-pv-1")),
            (SecretKind::NodeStage, "${pvc.annotations['key']}", "fixed", Ok("fixed/mine")),
            (SecretKind::Provisioner, "${pvc.name}", "ns", Ok("ns/data")),
            (SecretKind::Provisioner, "${pvc.annotations['key']}", "ns", Err("pvc.annotations['key']")),
            (SecretKind::NodeStage, "x", "${pvc.name}", Err("pvc.name")),
            (SecretKind::NodeStage, "${pvc.nam}", "ns", Err("pvc.nam")),
        ];
        for (kind, name, namespace, expected) in rows {
            match (resolved(kind, name, namespace), expected) {
                (Ok(Some(named)), Ok(expected)) => {
                    assert_eq!(format!("{}/{}", named.namespace, named.name), expected);
                }
                (Err(BadClass::Template(bad)), Err(expected)) => assert_eq!(bad.token, expected),
                (answer, _) => panic!("{name} {namespace}: {answer:?}"),
            }
        }
    }

    #[test]
    fn secret_without_its_namespace_is_refused() {
        let class = class(&[("csi.storage.k8s.io/node-stage-secret-name", "x")]);
        assert!(secret(&class, SecretKind::NodeStage, &claim(), "pv").is_err());
        assert_eq!(secret(&class, SecretKind::NodePublish, &claim(), "pv"), Ok(None));
    }
}
