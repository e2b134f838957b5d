//! The kernels of `images.toml`, by name.

use std::fmt;

use serde::Deserialize;

/// The table that is built in.
const TABLE: &str = include_str!("../images.toml");

/// All kernels a guest can be booted with, the default one first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    #[serde(rename = "kernel")]
    kernels: Vec<Kernel>,
}

/// A kernel, as a set of packages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The name for `--kernel`.
    pub name: String,
    /// The output of `uname -r` in the guest.
    pub version: String,
    /// The Debian suite that carries it.
    pub suite: String,
    /// The packages it comes in.
    pub packages: Vec<Package>,
}

/// One version of one package.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// The name the package client knows.
    pub name: String,
    /// The version; another one is another kernel.
    pub version: String,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
}

/// `--kernel` named none of them.
#[derive(Debug, thiserror::Error)]
#[error("no kernel is called `{asked}`; there are {known}{}", self.hint())]
pub struct UnknownKernel {
    asked: String,
    known: String,
    nearest: Option<String>,
}

impl UnknownKernel {
    fn hint(&self) -> String {
        self.nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
    }
}

impl Images {
    /// The table that is built in.
    pub fn built_in() -> Self {
        toml::from_str(TABLE).expect("images.toml is part of this crate and a test parses it")
    }

    /// All of them, the default first.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel of a guest unless another is requested.
    pub fn default_kernel(&self) -> &Kernel {
        &self.kernels[0]
    }

    /// The kernel of that name.
    pub fn find(&self, name: &str) -> Result<&Kernel, UnknownKernel> {
        self.kernels.iter().find(|kernel| kernel.name == name).ok_or_else(|| UnknownKernel {
            asked: name.to_owned(),
            known: self.names_by_version().join(", "),
            nearest: self
                .kernels
                .iter()
                .map(|kernel| (strsim::jaro_winkler(&kernel.name, name), &kernel.name))
                .filter(|(likeness, _)| *likeness > 0.7)
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, name)| name.clone()),
        })
    }
}

impl Images {
    /// The names of the kernels, the oldest first.
    fn names_by_version(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        names.sort_by_key(|name| name.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>());
        names
    }
}

impl Package {
    /// The name of its file in a pool and in the cache.
    pub fn file_name(&self) -> String {
        format!("{}_{}_amd64.deb", self.name, self.version)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        let images = Images::built_in();
        let mut names: Vec<_> = images.kernels().iter().map(|kernel| &kernel.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), images.kernels().len(), "every name once");
        for kernel in images.kernels() {
            assert!(!kernel.packages.is_empty(), "{kernel} has packages");
            for package in &kernel.packages {
                assert_eq!(package.sha256.len(), 64, "{}", package.name);
            }
        }
    }

    #[test]
    fn a_name_nearly_right_is_answered_with_the_right_one() {
        let error = Images::built_in().find("6.13").expect_err("there is no 6.13");
        assert!(error.to_string().contains("did you mean `6.1"), "{error}");
    }
}
