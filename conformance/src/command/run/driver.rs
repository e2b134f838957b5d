//! The driver of a command: from its flags to its manifest.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use harness::manifest::{Manifest, ManifestError, Sabotage, Span};
use runner::select;
use testbed::case::{self, CaseId};

use super::span;
use crate::command::{Exit, nearest_lines};

/// The flags that choose the driver. At most one of them; without any it is fake-csi.
#[derive(Debug, Args)]
#[group(multiple = true)]
pub(in crate::command) struct DriverFlags {
    /// The driver's manifest
    #[arg(long, value_name = "FILE", conflicts_with_all = ["driver_cmd", "socket", "testdriver"])]
    pub(super) driver: Option<PathBuf>,
    /// The driver's command line, with {socket}, {endpoint}, {node} and {state}; no manifest is needed
    #[arg(long, value_name = "CMD", allow_hyphen_values = true, conflicts_with = "socket")]
    driver_cmd: Option<String>,
    /// The driver's container image: an OCI layout, an archive of `docker save` or a root file system as a tarball. Its
    /// entrypoint is started, with the arguments of --driver-cmd if that names no program
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    image: Option<PathBuf>,
    /// The socket of a driver that already runs
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The socket of its controller service, where that is another process
    #[arg(long, value_name = "PATH")]
    controller_socket: Option<PathBuf>,
    /// How long the driver may take until it answers, such as 60s; the manifest's `[timeouts] start` otherwise
    #[arg(long, value_name = "TIME", value_parser = span)]
    start_timeout: Option<Duration>,
    /// The manifest of the Kubernetes external storage e2e tests, beside --driver-cmd or --socket
    #[arg(long, value_name = "FILE")]
    pub(super) testdriver: Option<PathBuf>,
    /// Have fake-csi break one promise, to see its report; `volproof __fake-csi sabotages` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["driver", "driver_cmd", "image", "socket", "testdriver"])]
    sabotage: Option<Sabotage>,
}

impl DriverFlags {
    /// Whether the driver is fake-csi.
    pub(in crate::command) fn is_ours(&self) -> bool {
        let Self {
            driver,
            driver_cmd,
            image,
            socket,
            testdriver,
            controller_socket: _,
            start_timeout: _,
            sabotage: _,
        } = self;
        driver.is_none()
            && driver_cmd.is_none()
            && image.is_none()
            && socket.is_none()
            && testdriver.is_none()
    }

    /// The manifest of fake-csi, with more arguments.
    pub(in crate::command) fn ours(&self, arguments: &[&str]) -> Manifest {
        let sabotage = self.sabotage.iter().flat_map(|sabotage| ["--sabotage", sabotage.name()]);
        let arguments: Vec<String> = arguments.iter().copied().chain(sabotage).map(str::to_owned).collect();
        Manifest::fake_csi(&arguments)
    }
}

/// The manifest of the chosen driver.
pub(in crate::command) fn manifest(flags: &DriverFlags, rootless: bool) -> Result<Manifest, Exit> {
    let unusable = |error: ManifestError| {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        Exit::usage(error.to_string()).details(causes.map(ToString::to_string)).maybe_hint(error.hint())
    };
    let image = flags.image.as_deref();
    let mut manifest = match (&flags.driver, &flags.driver_cmd, &flags.socket, image) {
        (Some(file), ..) => Manifest::read_with_image(file, image).map_err(unusable)?,
        (_, Some(command), ..) => Manifest::from_command_with_image(command, image).map_err(unusable)?,
        (_, _, Some(socket), _) => Manifest::from_socket(socket),
        (.., Some(image)) => Manifest::from_image(image),
        _ if flags.testdriver.is_some() => {
            return Err(Exit::usage("cannot start a driver from --testdriver alone: it does not say how")
                .hint("add --driver-cmd './my-driver --endpoint={endpoint}', or --socket of one that runs"));
        }
        _ if rootless => flags.ours(&["--backing=directory"]),
        _ => flags.ours(&[]),
    };
    if let Some(limit) = flags.start_timeout {
        manifest.timeouts.start = Span::new(limit);
    }
    if let Some(file) = &flags.testdriver {
        manifest = manifest.with_testdriver(file).map_err(|error| {
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
            Exit::usage(error.to_string()).details(causes.map(ToString::to_string)).maybe_hint(error.hint())
        })?;
    }
    if let Some(socket) = manifest.socket.as_ref().filter(|_| rootless) {
        let message = format!(
            "cannot test the driver behind `{}` without root: its mounts could not be seen",
            socket.display()
        );
        return Err(Exit::environment(message)
            .hint("run it with sudo, or let the run start the driver: --driver-cmd"));
    }
    if let Some(socket) = &flags.controller_socket {
        manifest.controller_socket = Some(std::path::absolute(socket).unwrap_or_else(|_| socket.clone()));
    }
    if let Some(unknown) =
        manifest.expected_failures.keys().find(|id| case::find(&CaseId::new(*id)).is_none())
    {
        let ids: Vec<_> = case::all().iter().map(|case| case.id()).collect();
        let nearest = select::nearest(unknown, &ids);
        return Err(Exit::usage(format!("[expected_failures] names `{unknown}`, and there is no such case"))
            .details(nearest_lines(&nearest)));
    }
    Ok(manifest)
}

/// Refuses a driver that runs already for a command that has no access to its mounts.
pub(in crate::command) fn refuse_running(manifest: &Manifest, place: &str) -> Result<(), Exit> {
    let Some(socket) = &manifest.socket else { return Ok(()) };
    let message = format!("cannot use the driver behind `{}` {place}: it mounts elsewhere", socket.display());
    Err(Exit::environment(message)
        .hint("let volproof start it: `command` in the manifest, or --driver-cmd './my-driver --endpoint={endpoint}'"))
}
