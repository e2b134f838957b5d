//! Reads a JSON value into a type of Kubernetes' and notes the fields that the type does not have. Such a field is a
//! misspelled one, and the object without it would be another one than was meant.

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// A field that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// The path of the field, such as `spec.containers[0].volumeMount`.
    pub path: String,
    /// The field of that place whose name is most like it.
    pub nearest: &'static str,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no field `{}`; the nearest is `{}`", self.path, self.nearest)
    }
}

/// Reads a value, and returns the first field that was passed over.
pub(crate) fn read<K: DeserializeOwned>(value: Value) -> Result<(K, Option<UnknownField>), Error> {
    let found = RefCell::default();
    let read = K::deserialize(Strict { value, path: String::new(), found: &found })?;
    Ok((read, found.into_inner()))
}

/// A value at its path.
struct Strict<'a> {
    value: Value,
    path: String,
    found: &'a RefCell<Option<UnknownField>>,
}

impl Strict<'_> {
    fn check(&self, fields: &Map<String, Value>, known: &'static [&'static str]) {
        // A field without a value is one that was left out.
        let unknown = fields.iter().find(|(name, value)| !value.is_null() && !known.contains(&name.as_str()));
        let mut found = self.found.borrow_mut();
        if let (None, Some((name, _))) = (&*found, unknown) {
            let like = |known: &&&str| (strsim::jaro_winkler(known, name) * 1000.0) as u32;
            let nearest = known.iter().max_by_key(like).copied().unwrap_or_default();
            *found = Some(UnknownField { path: below(&self.path, name), nearest });
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<'de> Deserializer<'de> for Strict<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) => {
                let (path, found) = (self.path, self.found);
                visitor.visit_map(Fields { fields: fields.into_iter(), next: None, path, found })
            }
            Value::Array(items) => {
                let (path, found) = (self.path, self.found);
                visitor.visit_seq(Items { items: items.into_iter().enumerate(), path, found })
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Value::Object(fields) = &self.value {
            self.check(fields, known);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

/// The fields of an object, one by one.
struct Fields<'a> {
    fields: serde_json::map::IntoIter,
    /// The field whose value is asked for next.
    next: Option<(String, Value)>,
    path: String,
    found: &'a RefCell<Option<UnknownField>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next = self.fields.next();
        let Some((name, _)) = &self.next else { return Ok(None) };
        seed.deserialize(name.clone().into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (name, value) = self.next.take().unwrap_or_default();
        seed.deserialize(Strict { value, path: below(&self.path, &name), found: self.found })
    }
}

/// The items of a list, one by one.
struct Items<'a> {
    items: std::iter::Enumerate<std::vec::IntoIter<Value>>,
    path: String,
    found: &'a RefCell<Option<UnknownField>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let path = format!("{}[{index}]", self.path);
        seed.deserialize(Strict { value, path, found: self.found }).map(Some)
    }
}
