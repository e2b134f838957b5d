//! A Python for the test of the tutorial: a virtual environment in cargo's directory, with what its page installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::workspace::target_directory;

/// The variable that names a Python to the test.
pub(crate) const NAMED: &str = "VOLPROOF_PYTHON";

/// Directories that a driver has of its own.
const HIDDEN: [&str; 2] = ["/tmp", "/run"];

/// The packages of the tutorial's page.
const PACKAGES: [&str; 2] = ["grpcio", "grpcio-tools"];

/// Makes sure that there is such a Python. Without one the test is skipped, and says why.
pub(crate) fn prepare(no_install: bool) -> Result<()> {
    let environment = environment()?;
    let is_there = std::env::var_os(NAMED).is_some() || has_packages(Path::new("python3"));
    if is_there || has_packages(&program(&environment)) {
        return Ok(());
    }
    let packages = PACKAGES.join(" ");
    if HIDDEN.iter().any(|hidden| environment.starts_with(hidden)) {
        eprintln!(
            "warning: a driver does not see `{}`: the tutorial's page is not tested",
            environment.display()
        );
        return Ok(());
    }
    if no_install {
        eprintln!("{:>12} {packages:<14} the drivers of the tutorial are written in Python", "Missing");
        return Ok(());
    }
    eprintln!("{:>12} {packages} in {}   (--no-install forbids it)", "Installing", environment.display());
    // An index that does not answer is given up soon.
    let patience = ["--timeout", "20", "--retries", "1"];
    let fetch = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let works = runs(Command::new("python3").args(["-m", "venv"]).arg(&environment))
        && runs(Command::new(program(&environment)).args(fetch).args(patience).args(PACKAGES));
    if !works {
        eprintln!("warning: there is no Python with {packages}: the tutorial's page is not tested");
    }
    Ok(())
}

/// The Python that [`prepare`] has made, if no other one is named.
pub(crate) fn made() -> Result<Option<PathBuf>> {
    if std::env::var_os(NAMED).is_some() {
        return Ok(None);
    }
    Ok(Some(program(&environment()?)).filter(|program| has_packages(program)))
}

fn environment() -> Result<PathBuf> {
    Ok(target_directory()?.join("xtask/python"))
}

fn program(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn has_packages(python: &Path) -> bool {
    let mut import = Command::new(python);
    import.args(["-c", "import grpc, grpc_tools"]).stdout(Stdio::null()).stderr(Stdio::null());
    import.status().is_ok_and(|status| status.success())
}

fn runs(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
