//! Any unary call as JSON, from its bytes and its method's name. Touches nothing.
//!
//! The mapping is protobuf's own: camelCase names, enum values by name, 64-bit integers as strings, absent fields
//! left out. Fields marked as secret, and a pod's service account tokens in any field, become `***`. The keys
//! of a secret map stay: they show which secrets were sent.

use std::fmt;

use prost::Message;
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, SerializeOptions, Value};

use crate::descriptor;

/// Stands for a secret in the JSON.
pub const MASK: &str = "***";

/// The key of the service account tokens that a kubelet sends, in the volume context or among the secrets.
pub const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A call that cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Neither contract has such a method.
    #[error("cannot find the method `{method}`")]
    UnknownMethod {
        /// The requested path.
        method: String,
    },
    /// The bytes are no message of that type.
    #[error("cannot decode `{message}`")]
    Decode {
        /// The full name of the type.
        message: String,
        /// The decoder's error.
        #[source]
        source: prost::DecodeError,
    },
    /// The JSON is no message of that type.
    #[error("cannot read JSON as `{message}`")]
    Deserialize {
        /// The full name of the type.
        message: String,
        /// The error of serde.
        #[source]
        source: serde_json::Error,
    },
    /// A value has no JSON form, such as a timestamp out of range.
    #[error("cannot write `{message}` as JSON")]
    Serialize {
        /// The full name of the type.
        message: String,
        /// The serializer's error.
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
    let mut message = DynamicMessage::decode(kind.clone(), bytes)
        .map_err(|source| JsonError::Decode { message: kind.full_name().to_owned(), source })?;
    mask(&mut message);
    message
        .serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())
        .map_err(|source| JsonError::Serialize { message: kind.full_name().to_owned(), source })
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
