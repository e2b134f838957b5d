//! Any unary call as JSON, from its bytes and its method's name. Touches nothing.
//!
//! The mapping is protobuf's own: camelCase names, enum values by name, 64-bit integers as strings, absent fields
//! left out. Fields marked as secret, and a pod's service account tokens in any field, become `***`. The keys
//! of a secret map stay: they show which secrets were sent.

use std::fmt;

use prost::Message;
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage, SerializeOptions, Value};

use crate::descriptor;

/// Stands for a secret in the JSON.
pub const MASK: &str = "***";

/// The key of the service account tokens that a kubelet sends, in the volume context or among the secrets.
pub const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A call that cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Neither CSI nor the API of plugin registration has such a method.
    #[error("cannot find the method `{method}`")]
    UnknownMethod {
        /// The path of the request, such as `/csi.v1.Node/NodeStageVolume`.
        method: String,
    },
    /// The bytes are no message of that type.
    #[error("cannot decode `{message}`")]
    Decode {
        /// The full name of the type.
        message: String,
        /// Why the bytes could not be decoded.
        #[source]
        source: prost::DecodeError,
    },
    /// The JSON is no message of that type.
    #[error("cannot read JSON as `{message}`")]
    Deserialize {
        /// The full name of the type.
        message: String,
        /// Why the JSON does not fit.
        #[source]
        source: serde_json::Error,
    },
    /// A value has no JSON form, such as a timestamp out of range.
    #[error("cannot write `{message}` as JSON")]
    Serialize {
        /// The full name of the type.
        message: String,
        /// Why the message has no JSON.
        #[source]
        source: serde_json::Error,
    },
}

/// The request of `method` (such as `/csi.v1.Node/NodeStageVolume`), secrets masked.
///
/// # Errors
/// When the method is unknown or the bytes are not its request.
pub fn request(method: &str, bytes: &[u8]) -> Result<serde_json::Value, JsonError> {
    convert(&find(method)?.input(), bytes)
}

/// The response of `method`, secrets masked.
///
/// # Errors
/// When the method is unknown or the bytes are not its response.
pub fn response(method: &str, bytes: &[u8]) -> Result<serde_json::Value, JsonError> {
    convert(&find(method)?.output(), bytes)
}

/// The request of `method` as [`request`] has it, and its secrets, each with its key: the values of fields marked as secret,
/// and every service account token.
pub fn request_and_secrets(
    method: &str,
    bytes: &[u8],
) -> (Result<serde_json::Value, JsonError>, Vec<Secret>) {
    let mut secrets = Vec::new();
    let message = find(method).and_then(|method| decode(&method.input(), bytes)).inspect(|message| {
        for (field, value) in message.fields() {
            collect(field.name(), value, descriptor::is_secret(&field), &mut secrets);
        }
    });
    (message.and_then(masked), secrets)
}

/// A secret with its key.
pub type Secret = (String, String);

fn collect(key: &str, value: &Value, secret: bool, found: &mut Vec<Secret>) {
    match value {
        Value::Message(message) => {
            for (field, value) in message.fields() {
                collect(field.name(), value, descriptor::is_secret(&field), found);
            }
        }
        Value::List(items) => items.iter().for_each(|item| collect(key, item, secret, found)),
        Value::Map(entries) => {
            for (key, entry) in entries {
                let MapKey::String(key) = key else { continue };
                collect(key, entry, secret || key == TOKENS_KEY, found);
            }
        }
        Value::String(text) if key == TOKENS_KEY => found.extend(tokens(text)),
        Value::String(text) if secret => found.push((key.to_owned(), text.clone())),
        _ => {}
    }
}

/// The tokens in `{"audience": {"token": "…", "expirationTimestamp": "…"}}`; all of the text if it is anything else.
fn tokens(text: &str) -> Vec<Secret> {
    let parsed: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(text).ok();
    let tokens =
        parsed.iter().flat_map(serde_json::Map::values).filter_map(|entry| entry.get("token")?.as_str());
    let tokens: Vec<String> = tokens.map(str::to_owned).collect();
    let tokens = if tokens.is_empty() { vec![text.to_owned()] } else { tokens };
    tokens.into_iter().map(|token| (TOKENS_KEY.to_owned(), token)).collect()
}

/// Encodes a request of `method` from JSON.
///
/// # Errors
/// When the method is unknown or its request does not have these fields.
pub fn encode(method: &str, request: serde_json::Value) -> Result<Vec<u8>, JsonError> {
    let kind = find(method)?.input();
    let message = DynamicMessage::deserialize(kind.clone(), request)
        .map_err(|source| JsonError::Deserialize { message: kind.full_name().to_owned(), source })?;
    Ok(message.encode_to_vec())
}

/// Formats the CSI message of this name, secrets masked.
pub(crate) fn show(name: &str, message: &impl Message, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let kind = descriptor::pool().get_message_by_name(&format!("csi.v1.{name}"));
    let kind = kind.expect("the message was made from its descriptor");
    match convert(&kind, &message.encode_to_vec()) {
        Ok(value) => write!(f, "{name} {value}"),
        Err(error) => write!(f, "{name} <{error}>"),
    }
}

fn find(method: &str) -> Result<prost_reflect::MethodDescriptor, JsonError> {
    descriptor::method(method).ok_or_else(|| JsonError::UnknownMethod { method: method.to_owned() })
}

fn convert(kind: &MessageDescriptor, bytes: &[u8]) -> Result<serde_json::Value, JsonError> {
    masked(decode(kind, bytes)?)
}

fn decode(kind: &MessageDescriptor, bytes: &[u8]) -> Result<DynamicMessage, JsonError> {
    DynamicMessage::decode(kind.clone(), bytes)
        .map_err(|source| JsonError::Decode { message: kind.full_name().to_owned(), source })
}

fn masked(mut message: DynamicMessage) -> Result<serde_json::Value, JsonError> {
    mask(&mut message);
    message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new()).map_err(
        |source| JsonError::Serialize { message: message.descriptor().full_name().to_owned(), source },
    )
}

fn mask(message: &mut DynamicMessage) {
    for (field, value) in message.fields_mut() {
        mask_value(value, descriptor::is_secret(&field));
    }
}

fn mask_value(value: &mut Value, secret: bool) {
    match value {
        Value::Message(message) => mask(message),
        Value::List(items) => items.iter_mut().for_each(|item| mask_value(item, secret)),
        Value::Map(entries) => {
            for (key, entry) in entries {
                let tokens = matches!(key, MapKey::String(key) if key == TOKENS_KEY);
                mask_value(entry, secret || tokens);
            }
        }
        other if secret => *other = Value::String(MASK.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_request_come_with_their_keys() {
        let tokens = r#"{"a":{"token":"t-1","expirationTimestamp":"later"},"b":{"token":"t-2"}}"#;
        let json = serde_json::json!({
            "volumeId": "v", "secrets": { "password": "hunter2" }, "volumeContext": { TOKENS_KEY: tokens, "a": "b" }
        });
        let bytes = encode("NodePublishVolume", json).unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let (shown, mut found) = request_and_secrets("/csi.v1.Node/NodePublishVolume", &bytes);
        assert_eq!(shown.unwrap(), request("NodePublishVolume", &bytes).unwrap());
        found.sort();
        assert_eq!(found, [pair(TOKENS_KEY, "t-1"), pair(TOKENS_KEY, "t-2"), pair("password", "hunter2")]);
        let without = |method: &str, bytes: &[u8]| request_and_secrets(method, bytes).0.unwrap_err();
        assert!(matches!(without("NodePublishVolume", b"\xff"), JsonError::Decode { .. }));
        assert!(matches!(without("NoSuchCall", &bytes), JsonError::UnknownMethod { .. }));
    }

    #[test]
    fn encoded_request_decodes_to_the_same_json() {
        let json = serde_json::json!({ "volumeId": "v", "capacityRange": { "requiredBytes": "5" } });
        let bytes = encode("NodeExpandVolume", json.clone()).unwrap();
        assert_eq!(request("NodeExpandVolume", &bytes).unwrap(), json);
        assert_eq!(descriptor::path("NodeExpandVolume").as_deref(), Some("/csi.v1.Node/NodeExpandVolume"));
        let unknown = encode("NodeExpandVolume", serde_json::json!({ "volume": "v" })).unwrap_err();
        assert!(matches!(unknown, JsonError::Deserialize { .. }), "{unknown}");
        assert!(matches!(encode("NoSuchCall", json), Err(JsonError::UnknownMethod { .. })));
    }
}
