//! Secrets, config maps, events and tokens.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::object::{Meta, Reference};

/// A secret value: its `Debug` is a mask. It can be sent, not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sensitive<T>(T);

impl<T> Sensitive<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value. The caller must not write it down.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<masked>")
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Secret {
    pub meta: Meta,
    pub data: BTreeMap<String, Sensitive<Vec<u8>>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub meta: Meta,
    pub data: BTreeMap<String, String>,
    /// `binaryData`: values that are not text.
    pub binary: BTreeMap<String, Vec<u8>>,
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    Normal,
    Warning,
}

/// An event about an object: what `kubectl describe` shows below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    pub meta: Meta,
    /// The object that the event is about.
    pub about: Reference,
    pub severity: Severity,
    /// One word for machines, such as `FailedMount`.
    pub reason: String,
    pub message: String,
}

impl Notification {
    /// An event that [`ApiSource::create`](super::ApiSource::create) names. It is in the namespace of its object, or in
    /// `default` if the object has none.
    pub fn about(about: Reference, severity: Severity, reason: impl ToString, message: String) -> Self {
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        Self { meta: Meta::named(namespace, ""), about, severity, reason: reason.to_string(), message }
    }
}

/// Asks for a token of a service account that is valid while a pod exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRequest {
    /// Namespace of the account.
    pub namespace: String,
    pub account: String,
    /// The audiences that accept the token; empty for the API server.
    pub audiences: Vec<String>,
    /// Seconds until the token expires; `None` for the server's choice.
    pub expiration: Option<i64>,
    /// The pod that the token is bound to.
    pub pod: Reference,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub token: Sensitive<String>,
    /// The end of the token's validity, in RFC 3339.
    pub expires: String,
}
