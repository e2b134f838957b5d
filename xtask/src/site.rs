//! `cargo xtask site`: all documents, every case and every promise as one static site with a search.
//!
//! It opens from a disk, without a network and without a server. The pages are the documents that README.md and the index
//! of `docs/` lead to; what they link to beside documents is copied. Writes below one directory.

mod generated;
mod markdown;
mod page;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::flags::Site;
use crate::workspace::{NOT_PREPARED, build_volproof, root, target_directory};
use markdown::{Document, Targets};

/// The documents that the others are reached from, in the order of the sidebar.
const ROOTS: [&str; 4] = ["README.md", "docs/README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(crate) fn run(flags: Site) -> Result<ExitCode> {
    let binary = match flags.binary {
        Some(binary) => binary,
        None => match build_volproof()? {
            Some(binary) => binary,
            None => return Ok(ExitCode::from(NOT_PREPARED)),
        },
    };
    let out = match flags.out {
        Some(out) => std::path::absolute(out)?,
        None => target_directory()?.join("site"),
    };
    let mut sources = generated::pages(&binary)?;
    let linked = collect(&mut sources)?;
    let targets = Targets { documents: sources.keys().cloned().collect() };
    let documents: Vec<Document> =
        sources.iter().map(|(path, text)| Document::read(path, text, &targets)).collect();
    page::write(&out, &documents)?;
    for file in &linked {
        copy(&root().join(file), &out.join(markdown::copied(file)))?;
    }
    println!("{:>12} {} ({} pages)", "Wrote", out.join("index.html").display(), documents.len());
    Ok(ExitCode::SUCCESS)
}

/// Adds each document that a link leads to, and returns the files and directories that are linked beside them.
fn collect(sources: &mut BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut waiting: VecDeque<String> = ROOTS.map(str::to_owned).into();
    let mut files = Vec::new();
    while let Some(path) = waiting.pop_front() {
        if sources.contains_key(&path) {
            continue;
        }
        let file = root().join(&path);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        for link in markdown::links(&path, &text) {
            match root().join(&link) {
                of if of.is_dir() && of.join("README.md").exists() => {
                    waiting.push_back(format!("{link}/README.md"));
                }
                _ if link.ends_with(".md") => waiting.push_back(link),
                of if of.exists() => files.push(link),
                _ => {}
            }
        }
        sources.insert(path, text);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Copies a file; of a directory, a list of its files and each of them.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
        fs::copy(from, to).with_context(|| format!("cannot copy `{}`", from.display()))?;
        return Ok(());
    }
    let entries: Vec<PathBuf> =
        fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    let mut files: Vec<&Path> = entries.iter().filter(|path| path.is_file()).map(PathBuf::as_path).collect();
    files.sort();
    let directory = to.parent().context("a page is in a directory")?;
    fs::create_dir_all(directory)?;
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for file in &files {
        copy(file, &directory.join(markdown::copied(&name(file))))?;
    }
    let names: Vec<String> = files.iter().map(|file| name(file)).collect();
    fs::write(to, page::listing(&name(from), &names))?;
    Ok(())
}
