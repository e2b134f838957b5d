//! The CSI versions that a driver's registration offers.
//!
//! Pure functions.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

impl Version {
    /// Parses `1.2`, `1.2.3` or `v1.2.3-suffix`; at least two numbers are needed.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map(|number| number.parse::<u64>().ok());
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let patch = numbers.next().flatten().unwrap_or(0);
        Some(Self { major, minor, patch })
    }
}

/// The highest supported version, which must be 1.x.
///
/// Entries that cannot be parsed and versions from 2 on are ignored. A driver that offers only 0.x or 2.x
/// versions is refused.
pub(crate) fn highest(offered: &[String]) -> Result<Version, VersionError> {
    if offered.is_empty() {
        return Err(VersionError::None);
    }
    let known = offered.iter().filter_map(|text| Version::parse(text)).filter(|version| version.major <= 1);
    match known.max() {
        Some(version) if version.major == 1 => Ok(version),
        _ => Err(VersionError::Unsupported(offered.join(", "))),
    }
}

/// Why a driver's versions are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The list is empty.
    #[error("driver reported an empty list for supported versions")]
    None,
    /// None of the versions is supported.
    #[error("none of the CSI versions reported by this driver are supported: {0}")]
    Unsupported(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_major_version_will_do() {
        for (offered, highest_one) in [
            (&["1.0.0"][..], Some((1, 0, 0))),
            (&["1.2"], Some((1, 2, 0))),
            (&["v1.3.0-rc1"], Some((1, 3, 0))),
            (&["1.3-rc1"], Some((1, 3, 0))),
            (&["1.3.4+build.5"], Some((1, 3, 4))),
            (&["0.3.0", "1.1.0", "1.0.1"], Some((1, 1, 0))),
            (&["2.0.0", "1.0.0"], Some((1, 0, 0))),
            (&["latest", "1.0.0"], Some((1, 0, 0))),
            (&["0.9.0"], None),
            (&["2.0.0"], None),
            (&["1"], None),
            (&[""], None),
            (&[], None),
        ] {
            let offered: Vec<String> = offered.iter().map(|text| (*text).to_owned()).collect();
            let found = highest(&offered).ok().map(|version| (version.major, version.minor, version.patch));
            assert_eq!(found, highest_one, "{offered:?}");
        }
    }
}
