//! The repository as the rules see it: its text files, and what cargo knows of its packages.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// Everything a rule may look at.
#[derive(Debug, Default)]
pub(crate) struct Repository {
    /// Text files by their path from the root.
    pub(crate) files: BTreeMap<String, String>,
    /// Our packages by name.
    pub(crate) packages: BTreeMap<String, Package>,
}

/// One of our packages.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// Its manifest, from the root of the repository.
    pub(crate) manifest: String,
    /// The names of its dependencies and build dependencies.
    pub(crate) links: Vec<String>,
    /// The names of its dev-dependencies.
    pub(crate) tests_link: Vec<String>,
}

/// Directories without sources of ours.
const FOREIGN: &[&str] = &["target", ".git", "out"];

/// Extensions of the files that rules read.
const READ: &[&str] = &["rs", "toml", "md", "proto", "yml", "patch"];

impl Repository {
    /// Reads the working tree, with files that are not committed.
    pub(crate) fn read() -> Result<Repository> {
        let root = workspace::root();
        let mut repository = Repository::default();
        walk(&root, &root, &mut repository.files)?;
        repository.packages = packages(&workspace::metadata()?, &root)?;
        Ok(repository)
    }

    /// The files whose name ends in `.rs`.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// A repository made up for a test.
    #[cfg(test)]
    pub(crate) fn made_of(files: &[(&str, &str)]) -> Repository {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Repository { files, packages: BTreeMap::new() }
    }

    /// This repository with one more package.
    #[cfg(test)]
    pub(crate) fn with_package(mut self, name: &str, links: &[&str], tests_link: &[&str]) -> Repository {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let package = Package {
            manifest: format!("{name}/Cargo.toml"),
            links: own(links),
            tests_link: own(tests_link),
        };
        self.packages.insert(name.to_owned(), package);
        self
    }
}

fn walk(root: &Path, directory: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot list `{}`", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list `{}`", directory.display()))?;
        let path = entry.path();
        let name = entry.file_name();
        // The kind of the entry itself, so that no link is followed.
        let kind = entry.file_type().with_context(|| format!("cannot look at `{}`", path.display()))?;
        if kind.is_dir() {
            if !FOREIGN.iter().any(|foreign| name == *foreign) {
                walk(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| READ.iter().any(|read| extension == *read)) {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read `{}`", path.display()))?;
            files.insert(relative(&path, root), text);
        }
    }
    Ok(())
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn packages(metadata: &Value, root: &Path) -> Result<BTreeMap<String, Package>> {
    let listed = metadata["packages"].as_array().context("`cargo metadata` lists no packages")?;
    let mut packages = BTreeMap::new();
    for entry in listed {
        let name = entry["name"].as_str().context("a package without a name")?;
        let manifest = entry["manifest_path"].as_str().context("a package without a manifest")?;
        let mut package = Package { manifest: relative(Path::new(manifest), root), ..Package::default() };
        for dependency in entry["dependencies"].as_array().into_iter().flatten() {
            let name = dependency["name"].as_str().context("a dependency without a name")?.to_owned();
            match dependency["kind"].as_str() {
                Some("dev") => package.tests_link.push(name),
                _ => package.links.push(name),
            }
        }
        packages.insert(name.to_owned(), package);
    }
    Ok(packages)
}
