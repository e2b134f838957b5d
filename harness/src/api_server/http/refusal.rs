//! Answers that are errors, as the API server words them: an object of the kind `Status`. Touches nothing.

use serde_json::{Value, json};

use super::resource::Resource;

/// An error of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: u16,
    /// The word by which clients recognise the error.
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// The resource and the name that it is about.
    about: Option<(String, String)>,
}

impl Refused {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), about: None }
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        Self { about: Some((resource.plural.clone(), name.to_owned())), ..self }
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    pub(super) fn no_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(super) fn exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(super) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    pub(super) fn invalid(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is invalid: {why}", resource.kind);
        Self::new(422, "Invalid", message).about(resource, name)
    }

    pub(super) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn method(method: &str) -> Self {
        Self::new(405, "MethodNotAllowed", format!("the server does not allow the method {method} here"))
    }

    pub(super) fn media_type(found: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format: {found}; this server reads JSON and protobuf"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn protobuf_kind(api_version: &str, kind: &str) -> Self {
        let message =
            format!("the body is a {kind} of {api_version} in protobuf; this server reads that kind as JSON");
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn too_large() -> Self {
        Self::new(413, "RequestEntityTooLarge", "the request is larger than 1.5 MiB")
    }

    pub(super) fn too_old() -> Self {
        Self::new(410, "Expired", "too old resource version")
    }

    pub(super) fn too_many_requests() -> Self {
        Self::new(429, "TooManyRequests", "too many requests, please try again later")
    }

    pub(super) fn full() -> Self {
        Self::new(507, "InsufficientStorage", "the objects that the driver has made fill the server's memory")
    }

    /// The answer's body.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some((kind, name)) = &self.about {
            status["details"] = json!({ "kind": kind, "name": name });
        }
        if self.code == 429 {
            status["details"] = json!({ "retryAfterSeconds": 1 });
        }
        status
    }
}
