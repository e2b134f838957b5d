//! Variables of containers, and where their values come from.

use serde::{Deserialize, Serialize};

/// A variable of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    /// Its value.
    pub origin: Origin,
}

impl Variable {
    /// A variable whose value is written down.
    pub fn text(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), origin: Origin::Text(value.to_owned()) }
    }
}

/// Where the value of a variable comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// It is written down, with variables before it in it.
    Text(String),
    /// A field of the pod, by its path.
    Field(String),
    /// A limit or a request.
    Amount {
        /// Whose; empty for the container's own.
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
    /// What it is.
    pub kind: HolderKind,
    /// Its name; it is in the pod's namespace.
    pub name: String,
    /// Whether a container can do without it, or without what it should hold.
    pub optional: bool,
}

/// What holds values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HolderKind {
    ConfigMap,
    Secret,
}

/// All that an object holds, as variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// The object.
    pub holder: Holder,
    /// What their names begin with, before the object's keys.
    pub prefix: String,
}
