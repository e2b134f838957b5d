//! `cargo xtask package`: what people install: a tarball, a Debian package and a container image.
//!
//! Debian's own tools write them: `tar`, `dpkg-deb`, `mmdebstrap` and `umoci`. Writes below one directory.

mod debian;
mod image;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::flags::{Package, Part};
use crate::packages::{self, Wanted};
use crate::workspace::{NOT_PREPARED, cargo, metadata, root, status, target_directory};

/// What all parts have in common.
#[derive(Debug)]
pub(crate) struct Release {
    version: String,
    /// As Debian and container images call it.
    architecture: String,
    /// The time of the commit, which every file gets: two packages of one program are the same.
    time: String,
    /// The files as they are installed, from `usr` on.
    tree: PathBuf,
    out: PathBuf,
}

pub(crate) fn run(flags: Package) -> Result<ExitCode> {
    let parts = if flags.only.is_empty() { vec![Part::Tar, Part::Deb, Part::Image] } else { flags.only };
    let wanted = parts.contains(&Part::Image).then_some(Wanted::ForImages);
    if let Err(code) = packages::prepare(flags.no_install, wanted)? {
        return Ok(code);
    }
    let binary = match flags.binary {
        Some(binary) => binary,
        None => match build()? {
            Some(binary) => binary,
            None => return Ok(ExitCode::from(NOT_PREPARED)),
        },
    };
    refuse_dynamic(&binary)?;
    let out = match flags.out {
        Some(out) => std::path::absolute(out)?,
        None => target_directory()?.join("package"),
    };
    let release = Release::new(out)?;
    tree::write(&release, &binary)?;
    for part in parts {
        let written = match part {
            Part::Tar => tarball(&release)?,
            Part::Deb => debian::write(&release)?,
            Part::Image => image::write(&release, flags.base.as_deref())?,
        };
        println!("{:>12} {}", "Wrote", written.display());
    }
    fs::remove_dir_all(&release.tree)
        .with_context(|| format!("cannot remove `{}`", release.tree.display()))?;
    Ok(ExitCode::SUCCESS)
}

impl Release {
    fn new(out: PathBuf) -> Result<Self> {
        fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
        let metadata = metadata()?;
        let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
        let package = packages.iter().find(|package| package["name"] == "conformance");
        let version = package.and_then(|package| package["version"].as_str());
        let version = version.context("`cargo metadata` has no version of `conformance`")?.to_owned();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let time = match output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root())) {
            Ok(time) => time.trim().to_owned(),
            // The sources without their history, as an archive has them.
            Err(_) => "0".to_owned(),
        };
        Ok(Self { version, architecture: architecture.to_owned(), time, tree: out.join("tree"), out })
    }

    /// A command whose files all have the time of the commit.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", &self.time);
        command
    }

    /// The arguments by which `tar` writes the same archive each time.
    fn tar(&self, archive: &Path) -> Command {
        let mut tar = self.command("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
            .arg(format!("--mtime=@{}", self.time))
            .arg("-cf")
            .arg(archive);
        tar
    }
}

/// The linker packs the addresses that the program's start has to correct: 2.6 MB fewer.
const SHORT: &str = r#""-C", "link-arg=-Wl,-z,pack-relative-relocs""#;

/// Builds a program that needs no library of the machine, so that it runs on every Linux.
fn build() -> Result<Option<PathBuf>> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    eprintln!("{:>12} volproof in release, linked statically: half an hour the first time", "Building");
    let built = status(
        cargo()
            .args(["build", "--release", "--locked", "--package", "conformance", "--target", &target])
            .arg("--config")
            .arg(format!("target.{target}.rustflags=[\"-C\", \"target-feature=+crt-static\", {SHORT}]")),
    )?;
    Ok(built.success().then_some(target_directory()?.join(target).join("release/volproof")))
}

/// Refuses a program that would look for this machine's libraries on the machines of others.
fn refuse_dynamic(binary: &Path) -> Result<()> {
    let libraries = Command::new("ldd").arg(binary).output().context("cannot run `ldd`")?.stdout;
    ensure!(
        !String::from_utf8_lossy(&libraries).contains("=>"),
        "`{}` needs libraries of this machine; build it with `-C target-feature=+crt-static`",
        binary.display()
    );
    Ok(())
}

fn tarball(release: &Release) -> Result<PathBuf> {
    let name = format!("volproof-{}-linux-{}", release.version, release.architecture);
    let archive = release.out.join(format!("{name}.tar.gz"));
    let usr = release.tree.join("usr");
    let mut tar = release.tar(&archive);
    tar.args(["--gzip", "--transform"]).arg(format!("s,^\\.,{name},")).arg("-C").arg(usr).arg(".");
    done(&mut tar)?;
    Ok(archive)
}

/// Runs a command that has to succeed.
fn done(command: &mut Command) -> Result<()> {
    let ended = status(command)?;
    ensure!(ended.success(), "`{}` ended with {ended}", command.get_program().display());
    Ok(())
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run `{name}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{name}` ended with {}: {}", output.status, said.trim());
    String::from_utf8(output.stdout).with_context(|| format!("`{name}` printed no text"))
}
