//! The files of an installation, below `usr`: the program, its manual page, and completions for three shells.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Release, done, output};
use crate::workspace::root;

/// The shells, and the file each looks for.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/volproof"),
    ("zsh", "share/zsh/vendor-completions/_volproof"),
    ("fish", "share/fish/vendor_completions.d/volproof.fish"),
];

/// Writes the files anew.
pub(super) fn write(release: &Release, binary: &Path) -> Result<()> {
    if release.tree.exists() {
        fs::remove_dir_all(&release.tree)
            .with_context(|| format!("cannot remove `{}`", release.tree.display()))?;
    }
    let usr = release.tree.join("usr");
    let program = usr.join("bin/volproof");
    make_parent(&program)?;
    fs::copy(binary, &program).with_context(|| format!("cannot copy `{}`", binary.display()))?;

    // The program that is packed writes them, so that they fit it.
    let manual = usr.join("share/man/man1/volproof.1");
    put(&manual, &output(Command::new(&program).arg("man"))?)?;
    done(Command::new("gzip").args(["-9", "-n"]).arg(&manual))?;
    for (shell, file) in COMPLETIONS {
        put(&usr.join(file), &output(Command::new(&program).args(["completions", shell]))?)?;
    }
    let documents = usr.join("share/doc/volproof");
    for (file, name) in [("README.md", "README.md"), ("LICENSE", "copyright")] {
        let text = fs::read_to_string(root().join(file)).with_context(|| format!("cannot read `{file}`"))?;
        put(&documents.join(name), &text)?;
    }
    // Everybody may read them, whatever the umask here.
    done(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&release.tree))
}

/// Writes a file and the directories above it.
fn put(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a file has a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create `{}`", parent.display()))
}
