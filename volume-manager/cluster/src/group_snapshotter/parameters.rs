//! The parameters of a class of group snapshots that name secrets.

use std::collections::BTreeMap;

use api::names::Namespaced;

use crate::class_parameters::{BadTemplate, PREFIX, resolve};

/// The secret for the calls that take and delete a group.
pub(super) const TAKES: &str = "group-snapshotter-secret";
/// The secret for the call that asks for a group.
pub(super) const GETS: &str = "group-snapshotter-get-secret";

/// The secret that a class names, with its templates resolved for a group snapshot and its content.
pub(super) fn secret(
    parameters: &BTreeMap<String, String>,
    which: &str,
    group: &Namespaced,
    content: &str,
) -> Result<Option<Namespaced>, BadTemplate> {
    let value = |end: &str| parameters.get(&format!("{PREFIX}{which}-{end}"));
    let (Some(name), Some(namespace)) = (value("name"), value("namespace")) else { return Ok(None) };
    let in_namespace = |token: &str| match token {
        "volumegroupsnapshotcontent.name" => Some(content.to_owned()),
        "volumegroupsnapshot.namespace" => Some(group.namespace.clone()),
        _ => None,
    };
    let in_name = |token: &str| match token {
        "volumegroupsnapshot.name" => Some(group.name.clone()),
        _ => in_namespace(token),
    };
    Ok(Some(Namespaced::new(resolve(namespace, in_namespace)?, resolve(name, in_name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_templates_are_resolved_for_a_group() {
        let group = Namespaced::new("team", "monday");
        let rows = [
            ("fixed", "ns", Ok("ns/fixed")),
            ("${volumegroupsnapshot.name}", "${volumegroupsnapshot.namespace}", Ok("team/monday")),
            ("${volumegroupsnapshotcontent.name}", "ns", Ok("ns/c")),
            ("x", "${volumegroupsnapshot.name}", Err("volumegroupsnapshot.name")),
        ];
        for (name, namespace, expected) in rows {
            let parameters = [("name", name), ("namespace", namespace)].map(|(end, value)| {
                (format!("csi.storage.k8s.io/group-snapshotter-secret-{end}"), value.to_owned())
            });
            let parameters = parameters.into();
            let answer = secret(&parameters, TAKES, &group, "c");
            let answer = match &answer {
                Ok(secret) => Ok(secret.as_ref().map(ToString::to_string).unwrap_or_default()),
                Err(bad) => Err(bad.token.as_str()),
            };
            assert_eq!(answer, expected.map(str::to_owned), "{name} {namespace}");
            assert_eq!(secret(&parameters, GETS, &group, "c").ok().flatten(), None);
        }
    }
}
