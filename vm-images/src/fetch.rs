//! Brings packages into the cache with the system's package client.
//!
//! The client runs on lists and sources of its own below the cache, so a machine's set-up is neither asked
//! to know other suites nor changed; mirrors are the ones the machine already uses.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cache::{Cache, CacheError, verify};
use crate::images::{Kernel, Package};

/// An error while a kernel is fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The cache could not be used, or a package is not the one that was pinned.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// There is no package client we know.
    #[error("cannot fetch kernels: `apt-get` is not on this machine")]
    NoClient,
    /// The client uses no mirror that we could ask for the suite.
    #[error("cannot fetch `{suite}`: the package client names no mirror of Debian")]
    NoMirror {
        /// The suite that was looked for.
        suite: String,
    },
    #[error("cannot fetch `{what}`: {said}")]
    Client {
        /// The suite or package.
        what: String,
        /// The last line of the client's output.
        said: String,
    },
    /// A file of the client's own set-up could not be written.
    #[error("cannot write `{path}`")]
    Io { path: PathBuf, source: io::Error },
}

/// The files of a kernel's packages; only those missing from the cache are fetched.
pub fn fetch(cache: &Cache, kernel: &Kernel) -> Result<Vec<PathBuf>, FetchError> {
    let mut client = None;
    kernel
        .packages
        .iter()
        .map(|package| {
            if let Some(path) = cache.package(&package.file_name(), &package.sha256)? {
                return Ok(path);
            }
            let client = match &client {
                Some(client) => client,
                None => client.insert(Client::for_suite(cache, &kernel.suite)?),
            };
            client.download(cache, package)
        })
        .collect()
}

/// The files of a kernel's packages if all of them are in the cache.
pub fn cached(cache: &Cache, kernel: &Kernel) -> Result<Option<Vec<PathBuf>>, CacheError> {
    kernel.packages.iter().map(|package| cache.package(&package.file_name(), &package.sha256)).collect()
}

/// The package client, set up for one suite.
struct Client {
    options: Vec<String>,
}

impl Client {
    fn for_suite(cache: &Cache, suite: &str) -> Result<Self, FetchError> {
        let state = cache.dir(&format!("apt/{suite}"))?;
        for name in ["lists/partial", "archives/partial", "sources"] {
            let path = state.join(name);
            fs::create_dir_all(&path).map_err(|source| FetchError::Io { path, source })?;
        }
        let sources = state.join("sources/volproof.list");
        let line = source_line(suite)?;
        fs::write(&sources, line).map_err(|source| FetchError::Io { path: sources, source })?;
        let client = Self { options: options(&state) };
        let output = client.run(&["update"], &state)?;
        if !output.status.success() {
            return Err(FetchError::Client { what: suite.to_owned(), said: last_words(&output) });
        }
        Ok(client)
    }

    fn download(&self, cache: &Cache, package: &Package) -> Result<PathBuf, FetchError> {
        let into = cache.dir("debs")?;
        let exactly = format!("{}={}", package.name, package.version);
        let output = self.run(&["download", &exactly], &into)?;
        if !output.status.success() {
            return Err(FetchError::Client { what: exactly, said: last_words(&output) });
        }
        // The client writes the epoch's colon as %3a; our versions have none, and `verify` says if one comes.
        let path = into.join(package.file_name());
        verify(&path, &package.sha256)?;
        Ok(path)
    }

    fn run(&self, arguments: &[&str], dir: &Path) -> Result<Output, FetchError> {
        Command::new("apt-get")
            .args(&self.options)
            .args(arguments)
            .current_dir(dir)
            .env("LC_ALL", "C")
            .output()
            .map_err(|_| FetchError::NoClient)
    }
}

fn options(state: &Path) -> Vec<String> {
    let state = state.display();
    [
        "-qq".to_owned(),
        format!("-oDir::State={state}"),
        format!("-oDir::State::lists={state}/lists"),
        "-oDir::State::status=/var/lib/dpkg/status".to_owned(),
        format!("-oDir::Cache={state}"),
        "-oDir::Etc::sourcelist=/dev/null".to_owned(),
        format!("-oDir::Etc::sourceparts={state}/sources"),
        // A file in the cache belongs to the caller, not to the client's own user.
        "-oAPT::Sandbox::User=".to_owned(),
    ]
    .into()
}

/// The line that names a suite on a mirror this machine already uses.
fn source_line(suite: &str) -> Result<String, FetchError> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(SUITE)"])
        .output()
        .map_err(|_| FetchError::NoClient)?;
    let mirrors: BTreeSet<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next().map(|uri| uri.trim_end_matches('/').to_owned()))
        .collect();
    let security = suite.ends_with("-security");
    let mirror = mirrors
        .iter()
        .find(|uri| uri.ends_with("/debian-security") == security && uri.contains("/debian"))
        .ok_or_else(|| FetchError::NoMirror { suite: suite.to_owned() })?;
    // Its signature is checked by the keys of the machine; an older suite's key may have left the default
    // set, and the checksum of each package is pinned here besides.
    Ok(format!("deb {mirror} {suite} main\n"))
}

fn last_words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason was given").to_owned()
}
