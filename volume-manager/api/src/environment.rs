//! Variables of containers, and where their values come from.

use serde::{Deserialize, Serialize};

/// A variable of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    /// The source of its value.
    pub origin: Origin,
}

impl Variable {
    /// A variable whose value is written down.
    pub fn text(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), origin: Origin::Text(value.to_owned()) }
    }
}

/// The source of a variable's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A text, which may refer to earlier variables.
    Text(String),
    /// A field of the pod, by its path.
    Field(String),
    /// A limit or a request.
    Amount {
        /// The container with the resource; empty for the own one.
        container: String,
        /// Which, such as `limits.cpu`.
        resource: String,
        /// In which unit; empty for one.
        divisor: String,
    },
    /// A key of an object.
    Key(Holder, String),
    /// Something else, by its name in the API.
    Other(String),
}

/// An object that holds values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub kind: HolderKind,
    /// Its name; it is in the pod's namespace.
    pub name: String,
    /// Whether the object or the key may be missing.
    pub optional: bool,
}

/// The kind of an object with values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HolderKind {
    ConfigMap,
    Secret,
}

/// All that an object holds, as variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    pub holder: Holder,
    /// The prefix of the variables' names, before the object's keys.
    pub prefix: String,
}
