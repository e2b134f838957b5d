//! The metadata of every object, and small values that many have.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Kind;

/// Metadata of an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    pub name: String,
    /// The namespace; empty for kinds that have none.
    pub namespace: String,
    /// The identity: another object of the same name has another.
    pub uid: String,
    /// Changes with each write.
    pub resource_version: String,
    /// When it was made, in RFC 3339.
    pub created: Option<String>,
    /// When its deletion was requested, in RFC 3339.
    pub deleted: Option<String>,
    /// Seconds a deleted pod was given.
    pub deletion_grace: Option<i64>,
    /// The object is deleted when these are removed.
    pub finalizers: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// The owners of the object.
    pub owners: Vec<Owner>,
}

impl Meta {
    /// Metadata with a name in a namespace and nothing else.
    pub fn named(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), ..Self::default() }
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deleted.is_some()
    }

    /// Whether a finalizer holds it.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|held| held == finalizer)
    }

    /// The owner that controls it, if one does.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }
}

/// An owner of an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// Whether this owner controls the object.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for the object.
    pub block_deletion: bool,
}

/// A reference to an object, as an event or a claim reference has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reference {
    pub kind: Kind,
    /// Its namespace; empty for kinds that have none.
    pub namespace: String,
    pub name: String,
    /// Its identity; empty if unknown.
    pub uid: String,
}

impl Reference {
    /// Refers to an object by its metadata.
    pub fn to(kind: Kind, meta: &Meta) -> Self {
        Self { kind, namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
    }
}

/// An amount of storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Reads a Kubernetes quantity: digits with an optional fraction, then a binary (`Ki`) or decimal (`k`)
    /// suffix, an exponent (`e3`) or `m` for thousandths. Fractions of a byte are rounded up. `None` for
    /// anything else, for negative amounts and for what does not fit.
    pub fn from_quantity(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut mantissa: u128 = 0;
        for digit in whole.chars().chain(fraction.chars()) {
            mantissa = mantissa.checked_mul(10)?.checked_add(u128::from(digit.to_digit(10)?))?;
        }
        let (multiplier, mut divisor) = scale(suffix)?;
        for _ in fraction.chars() {
            divisor = divisor.checked_mul(10)?;
        }
        let bytes = mantissa.checked_mul(multiplier)?.div_ceil(divisor);
        u64::try_from(bytes).ok().map(Self)
    }

    /// Whether nothing is known, or wanted.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// The factor and the divisor of a suffix.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    let binary = |power: u32| Some((1u128 << (10 * power), 1));
    let decimal = |power: u32| Some((10u128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "m" => Some((1, 1000)),
        "u" => Some((1, 1_000_000)),
        "n" => Some((1, 1_000_000_000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => match suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            power @ 0..=18 => decimal(power.unsigned_abs()),
            power @ -18..=-1 => Some((1, 10u128.pow(power.unsigned_abs()))),
            _ => None,
        },
    }
}

impl fmt::Display for Bytes {
    /// Writes the largest binary suffix that loses nothing, as Kubernetes does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let (mut amount, mut power) = (self.0, 0);
        while amount != 0 && amount % 1024 == 0 && power + 1 < SUFFIXES.len() {
            amount /= 1024;
            power += 1;
        }
        write!(f, "{amount}{}", SUFFIXES[power])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, bytes) in [
            ("0", 0),
            ("16Mi", 16 << 20),
            ("1.5Gi", 3 << 29),
            ("1500m", 2),
            ("1e3", 1000),
            ("2k", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("15Ei", 15 << 60),
        ] {
            assert_eq!(Bytes::from_quantity(text), Some(Bytes(bytes)), "{text}");
        }
        for text in ["", "Mi", "-1", "1Zi", "16Ei", "1 Gi", "1e99", "1.2.3"] {
            assert_eq!(Bytes::from_quantity(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_are_written_without_loss() {
        assert_eq!(Bytes(16 << 20).to_string(), "16Mi");
        assert_eq!(Bytes(1000).to_string(), "1000");
        assert_eq!(Bytes(0).to_string(), "0");
    }
}
