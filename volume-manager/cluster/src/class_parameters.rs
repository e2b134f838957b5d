//! The parameters of classes. Those with the prefix of Kubernetes are for its controllers, and the driver gets the others.
//! In those that name secrets `${token}` stands for a value of the object that a class is used for.

use std::collections::BTreeMap;

/// The prefix of the parameters that no driver sees.
pub(crate) const PREFIX: &str = "csi.storage.k8s.io/";

/// The parameters that the driver gets.
pub(crate) fn of_driver(parameters: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let others = parameters.iter().filter(|(key, _)| !key.starts_with(PREFIX));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A template has a token that means nothing where it stands.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("error resolving value {template:?}: invalid tokens: [{token:?}]")]
pub(crate) struct BadTemplate {
    template: String,
    pub(crate) token: String,
}

/// A template with each token replaced by its value.
pub(crate) fn resolve(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, BadTemplate> {
    let mut resolved = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((token, after)) = after.split_once('}') else { break };
        let bad = || BadTemplate { template: template.to_owned(), token: token.to_owned() };
        resolved += before;
        resolved += &value(token).ok_or_else(bad)?;
        rest = after;
    }
    Ok(resolved + rest)
}
