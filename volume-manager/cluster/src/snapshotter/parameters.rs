//! The parameters of a snapshot class. Those with the prefix of Kubernetes name the secret; the driver gets the others.

use api::names::Namespaced;
use api::{Snapshot, SnapshotClass};

use super::content_name;
use crate::class_parameters::{BadTemplate, PREFIX, resolve};

/// The secret that a class names, with its templates resolved for a snapshot.
pub(super) fn secret(class: &SnapshotClass, snapshot: &Snapshot) -> Result<Option<Namespaced>, BadTemplate> {
    let value = |end: &str| class.parameters.get(&format!("{PREFIX}snapshotter-secret-{end}"));
    let (Some(name), Some(namespace)) = (value("name"), value("namespace")) else { return Ok(None) };
    let in_namespace = |token: &str| match token {
        "volumesnapshotcontent.name" => Some(content_name(snapshot)),
        "volumesnapshot.namespace" => Some(snapshot.meta.namespace.clone()),
        _ => None,
    };
    let in_name = |token: &str| match token {
        "volumesnapshot.name" => Some(snapshot.meta.name.clone()),
        _ => in_namespace(token),
    };
    Ok(Some(Namespaced::new(resolve(namespace, in_namespace)?, resolve(name, in_name)?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::Meta;

    use super::*;
    use crate::class_parameters::of_driver;

    fn class(name: &str, namespace: &str) -> SnapshotClass {
        let parameters = [
            ("csi.storage.k8s.io/snapshotter-secret-name", name),
            ("csi.storage.k8s.io/snapshotter-secret-namespace", namespace),
            ("tier", "gold"),
        ];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        SnapshotClass { parameters, ..SnapshotClass::default() }
    }

    #[test]
    fn secret_templates_are_resolved_for_a_snapshot() {
        let mut snapshot = Snapshot { meta: Meta::named("team", "monday"), ..Snapshot::default() };
        snapshot.meta.uid = "1".to_owned();
        let rows = [
            ("fixed", "ns", Ok("ns/fixed")),
            ("${volumesnapshot.name}", "${volumesnapshot.namespace}", Ok("team/monday")),
            ("${volumesnapshotcontent.name}", "ns", Ok("ns/snapcontent-1")),
            ("x", "${volumesnapshot.name}", Err("volumesnapshot.name")),
        ];
        for (name, namespace, expected) in rows {
            let answer = secret(&class(name, namespace), &snapshot);
            let answer = match &answer {
                Ok(secret) => Ok(secret.as_ref().map(ToString::to_string).unwrap_or_default()),
                Err(bad) => Err(bad.token.as_str()),
            };
            assert_eq!(answer, expected.map(str::to_owned), "{name} {namespace}");
        }
    }

    #[test]
    fn driver_does_not_get_the_snapshotters_parameters() {
        assert_eq!(
            of_driver(&class("a", "b").parameters),
            BTreeMap::from([("tier".to_owned(), "gold".to_owned())])
        );
    }
}
