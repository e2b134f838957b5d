//! The Python with which the tutorial's page is tested: a virtual environment in cargo's target directory, with the packages
//! that the page installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::workspace::target_directory;

/// The environment variable from which the test takes its Python.
pub(crate) const VARIABLE: &str = "VOLPROOF_PYTHON";

/// Directories that a sandboxed driver does not share with the machine.
const NOT_SHARED: [&str; 2] = ["/tmp", "/run"];

/// The packages that the tutorial's page installs.
const PACKAGES: [&str; 2] = ["grpcio", "grpcio-tools"];

/// Makes sure that there is a Python with the packages. Without it a warning is printed, and the test is skipped.
pub(crate) fn prepare(no_install: bool) -> Result<()> {
    let environment = environment()?;
    let is_there = std::env::var_os(VARIABLE).is_some() || has_packages(Path::new("python3"));
    if is_there || has_packages(&python_in(&environment)) {
        return Ok(());
    }
    let packages = PACKAGES.join(" ");
    if NOT_SHARED.iter().any(|directory| environment.starts_with(directory)) {
        eprintln!(
            "warning: a sandboxed driver cannot read `{}`: the tutorial's page is not tested",
            environment.display()
        );
        return Ok(());
    }
    if no_install {
        eprintln!("{:>12} {packages:<14} the drivers of the tutorial are written in Python", "Missing");
        return Ok(());
    }
    eprintln!("{:>12} {packages} in {}   (--no-install prevents it)", "Installing", environment.display());
    // The package index is given up soon if it does not answer.
    let limits = ["--timeout", "20", "--retries", "1"];
    let fetch = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let works = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment))
        && succeeds(Command::new(python_in(&environment)).args(fetch).args(limits).args(PACKAGES));
    if !works {
        eprintln!("warning: there is no Python with {packages}: the tutorial's page is not tested");
    }
    Ok(())
}

/// The Python that [`prepare`] has made; `None` if the variable names one.
pub(crate) fn prepared() -> Result<Option<PathBuf>> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(None);
    }
    Ok(Some(python_in(&environment()?)).filter(|python| has_packages(python)))
}

fn environment() -> Result<PathBuf> {
    Ok(target_directory()?.join("xtask/python"))
}

fn python_in(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn has_packages(python: &Path) -> bool {
    let mut import = Command::new(python);
    import.args(["-c", "import grpc, grpc_tools"]).stdout(Stdio::null()).stderr(Stdio::null());
    import.status().is_ok_and(|status| status.success())
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
