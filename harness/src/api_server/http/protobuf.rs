//! Decodes request bodies in the protobuf of Kubernetes, the default of client-go's typed clients, into JSON documents.
//! Touches nothing.

mod schema;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde_json::{Map, Value, json};

use super::refusal::Refused;
use crate::api_server::time;
use schema::{Field, Message, Shape};

pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of each body.
const MAGIC: &[u8] = b"k8s\0";

/// The object in a body.
///
/// # Errors
/// When the body has no object, or one of a kind that has to be sent as JSON.
pub(super) fn read(body: &[u8]) -> Result<Value, Refused> {
    let unreadable = || Refused::bad_request("the body cannot be read as protobuf");
    let envelope = body.strip_prefix(MAGIC).and_then(fields).ok_or_else(unreadable)?;
    let type_meta = fields(bytes_of(&envelope, 1)).ok_or_else(unreadable)?;
    let text = |number| String::from_utf8_lossy(bytes_of(&type_meta, number)).into_owned();
    let (version, kind) = (text(1), text(2));
    let message = schema::of(&version, &kind).ok_or_else(|| Refused::protobuf_kind(&version, &kind))?;
    let mut document = document(message, bytes_of(&envelope, 2)).ok_or_else(unreadable)?;
    document.insert("apiVersion".to_owned(), version.into());
    document.insert("kind".to_owned(), kind.into());
    Ok(document.into())
}

/// A field as it is on the wire: a number, or bytes.
struct Raw<'a> {
    number: u32,
    value: u64,
    bytes: &'a [u8],
}

fn fields(mut bytes: &[u8]) -> Option<Vec<Raw<'_>>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        let mut field = Raw { number, value: 0, bytes: &[] };
        match wire {
            WireType::Varint => field.value = decode_varint(&mut bytes).ok()?,
            WireType::SixtyFourBit => bytes = bytes.get(8..)?,
            WireType::ThirtyTwoBit => bytes = bytes.get(4..)?,
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
                (field.bytes, bytes) = bytes.split_at_checked(length)?;
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        }
        fields.push(field);
    }
    Some(fields)
}

/// The field with that number; the last one, if there are several.
fn last<'a, 'b>(fields: &'b [Raw<'a>], number: u32) -> Option<&'b Raw<'a>> {
    fields.iter().rev().find(|field| field.number == number)
}

/// The bytes of the field with that number; empty without such a field.
fn bytes_of<'a>(fields: &[Raw<'a>], number: u32) -> &'a [u8] {
    last(fields, number).map_or(&[], |field| field.bytes)
}

/// A message as JSON. Fields that the schema lacks are left out, as a server leaves out those of a later version.
fn document(message: &Message, bytes: &[u8]) -> Option<Map<String, Value>> {
    let mut document = Map::new();
    for raw in fields(bytes)? {
        let Some(field) = message.get(&raw.number) else { continue };
        insert(&mut document, field, &raw)?;
    }
    Some(document)
}

fn insert(document: &mut Map<String, Value>, field: &Field, raw: &Raw<'_>) -> Option<()> {
    match field.shape {
        Shape::One => {
            let value = value(field, raw)?;
            // Go writes every field that is no pointer, and leaves the empty ones out of JSON.
            if !value.is_null() && (field.is_pointer || !is_zero(&value)) {
                document.insert(field.name.to_owned(), value);
            }
        }
        Shape::Inline => document.extend(self::document(schema::named(field.kind), raw.bytes)?),
        Shape::List => {
            let item = value(field, raw)?;
            document.entry(field.name).or_insert_with(|| json!([])).as_array_mut()?.push(item);
        }
        Shape::Map => {
            let entry = fields(raw.bytes)?;
            let key = String::from_utf8_lossy(bytes_of(&entry, 1)).into_owned();
            let empty = Raw { number: 2, value: 0, bytes: &[] };
            let value = value(field, last(&entry, 2).unwrap_or(&empty))?;
            document.entry(field.name).or_insert_with(|| json!({})).as_object_mut()?.insert(key, value);
        }
    }
    Some(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn value(field: &Field, raw: &Raw<'_>) -> Option<Value> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let number = |number| Some(last(&fields(raw.bytes)?, number).map_or(0, |part| part.value).cast_signed());
    Some(match field.kind {
        "text" => text(raw.bytes)?.into(),
        "bytes" => STANDARD.encode(raw.bytes).into(),
        "bool" => (raw.value != 0).into(),
        "int" => raw.value.cast_signed().into(),
        // The zero time is null in JSON.
        "Time" | "MicroTime" if raw.bytes.is_empty() => Value::Null,
        "Time" => time::of(number(1)?).into(),
        "MicroTime" => time::of_micros(number(1)?, number(2)? / 1000).into(),
        "Quantity" => text(last(&fields(raw.bytes)?, 1)?.bytes)?.into(),
        "IntOrString" => match number(1)? {
            0 => number(2)?.into(),
            _ => text(bytes_of(&fields(raw.bytes)?, 3))?.into(),
        },
        kind => document(schema::named(kind), raw.bytes)?.into(),
    })
}

#[cfg(test)]
pub(super) mod tests;
