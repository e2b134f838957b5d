//! Discovery: the server's version and its resources. Touches nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::refusal::Refused;
use super::resource::{QUESTIONS, Resource};
use super::target::About;

/// The answer about the server itself.
pub(super) fn answer(about: &About, resources: &[Resource]) -> Result<Value, Refused> {
    Ok(match about {
        About::Version => json!({
            "major": "1", "minor": "34", "gitVersion": super::VERSION, "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "2025-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
        }),
        About::Health => json!("ok"),
        About::OpenApiV2 => json!({
            "swagger": "2.0", "info": { "title": "Kubernetes", "version": super::VERSION }, "paths": {}, "definitions": {},
        }),
        About::OpenApiV3 => json!({ "paths": {} }),
        About::CoreVersions => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
        }),
        About::Groups => {
            let groups = groups(resources);
            let groups: Vec<Value> =
                groups.iter().map(|(group, versions)| described(group, versions)).collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        About::Group(wanted) => {
            let groups = groups(resources);
            let versions = groups.get(wanted.as_str()).ok_or_else(Refused::no_path)?;
            let mut group = described(wanted, versions);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        About::Resources { group, version } => {
            let of = resources.iter().filter(|known| known.group == *group && known.version == *version);
            let list: Vec<Value> = of.flat_map(listed).collect();
            if list.is_empty() {
                return Err(Refused::no_path());
            }
            let name = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list })
        }
    })
}

/// The versions of each group but the core one.
fn groups(resources: &[Resource]) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in resources.iter().filter(|resource| !resource.group.is_empty()) {
        let versions = groups.entry(&resource.group).or_default();
        if !versions.contains(&resource.version.as_str()) {
            versions.push(&resource.version);
        }
    }
    groups
}

fn described(group: &str, versions: &[&str]) -> Value {
    let version =
        |version: &&str| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({ "name": group, "versions": versions, "preferredVersion": versions[0] })
}

/// A resource with its subresources.
fn listed(resource: &Resource) -> Vec<Value> {
    let verbs: &[&str] = match QUESTIONS.contains(&resource.plural.as_str()) {
        true => &["create"],
        false => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    };
    let entry = |name: String, verbs: &[&str]| {
        json!({
            "name": name, "singularName": resource.kind.to_lowercase(), "namespaced": resource.is_namespaced,
            "kind": resource.kind, "verbs": verbs,
        })
    };
    let mut list = vec![entry(resource.plural.clone(), verbs)];
    if resource.has_status {
        list.push(entry(format!("{}/status", resource.plural), &["get", "patch", "update"]));
    }
    if resource.plural == "serviceaccounts" && resource.group.is_empty() {
        let mut token = entry("serviceaccounts/token".to_owned(), &["create"]);
        token["kind"] = "TokenRequest".into();
        list.push(token);
    }
    list
}
