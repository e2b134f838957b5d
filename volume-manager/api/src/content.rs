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
    /// Hides a value.
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
    /// Metadata.
    pub meta: Meta,
    /// Its content.
    pub data: BTreeMap<String, Sensitive<Vec<u8>>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    /// Metadata.
    pub meta: Meta,
    /// Its text.
    pub data: BTreeMap<String, String>,
    /// Its bytes.
    pub binary: BTreeMap<String, Vec<u8>>,
}

/// Whether an event is bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// It is not.
    Normal,
    /// It is.
    Warning,
}

/// An event about an object: what `kubectl describe` shows below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    /// Metadata.
    pub meta: Meta,
    /// The object it is about.
    pub about: Reference,
    /// Whether it is bad news.
    pub severity: Severity,
    /// One word for machines, such as `FailedMount`.
    pub reason: String,
    /// The text.
    pub message: String,
}

impl Notification {
    /// An event without a name, which [`ApiSource::create`](super::ApiSource::create) gives it. About what has no
    /// namespace it is in `default`.
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
    /// Whom the token is for; none for the API server.
    pub audiences: Vec<String>,
    /// Seconds it lasts; `None` for the server's choice.
    pub expiration: Option<i64>,
    /// The pod it is bound to.
    pub pod: Reference,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub token: Sensitive<String>,
    /// When it ends, in RFC 3339.
    pub expires: String,
}
