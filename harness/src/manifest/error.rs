//! Why a manifest cannot be used, with the line and what to write instead.

use std::io;
use std::path::{Path, PathBuf};

use super::command::PLACEHOLDERS;
use super::nearest;

/// A command as a manifest has it.
const EXAMPLE: &str = "`command = [\"./my-driver\", \"--endpoint={endpoint}\", \"--nodeid={node}\"]`";

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file says something the manifest has no place for.
    #[error("cannot use `{path}`, line {line}, column {column}")]
    Invalid {
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong there.
        #[source]
        source: Problem,
    },
    /// It says neither how to start the driver nor where it is.
    #[error("cannot use `{path}`: it names none of `command`, `image` and `socket`")]
    NoDriver { path: PathBuf },
    #[error("cannot use `{path}`: it names a `command` and a `socket`, of which only one can be meant")]
    TwoDrivers { path: PathBuf },
    /// It says which root a driver is to have that runs already.
    #[error(
        "cannot use `{path}`: it names a `root` or an `image`, and the driver behind its `socket` has its root already"
    )]
    RootOfRunning { path: PathBuf },
    #[error("cannot use `{path}`: it names a `root` and an `image`, of which only one can be meant")]
    TwoRoots { path: PathBuf },
    /// It sets variables for a root that the driver does not have.
    #[error("cannot use `{path}`: it names `root_env`, and neither a `root` nor an `image`")]
    NoRootForEnv { path: PathBuf },
    /// It opens paths of the machine to a driver that has all of it.
    #[error(
        "cannot use `{path}`: it names `host_paths`, and the driver behind its `socket` has the whole machine"
    )]
    HostPathsOfRunning { path: PathBuf },
    /// It opens a path that does not exist.
    #[error("cannot use `{path}`: there is no `{opened}`, which it names in `host_paths`")]
    NoHostPath {
        path: PathBuf,
        /// The path in it.
        opened: PathBuf,
    },
    /// A word of the command holds a placeholder that does not exist.
    #[error("cannot use the command: there is no placeholder `{{{name}}}`")]
    UnknownPlaceholder {
        /// The name between the braces.
        name: String,
        /// The placeholder that was probably meant.
        meant: Option<&'static str>,
    },
    /// A command around the run holds a placeholder that has a value in a case only.
    #[error("cannot use [per_run]: `{{{name}}}` has a value in a case only")]
    PlaceholderOfRun { name: String },
    /// A file of the manifest lies where the driver's own directory is not.
    #[error("cannot make the file `{file}`: [files] makes files below {{state}} only")]
    FileElsewhere { file: String },
    /// A disk or an export is wanted where the driver's own directory is not.
    #[error("cannot make `{place}`: disks and exports are below {{state}} only")]
    FixtureElsewhere {
        /// The key that names the place.
        key: &'static str,
        place: String,
    },
    /// A driver that runs already has no `{state}` of a case.
    #[error("cannot make disks, volume groups, targets or an export for a driver that runs already")]
    FixturesOfRunning,
    /// Each node has a `{state}` of its own, and there is one set of disks.
    #[error("cannot make disks, volume groups, targets or an export with `state = \"per_node\"`")]
    FixturesOfEachNode,
    /// A volume group has a name that LVM does not take.
    #[error(
        "cannot make the volume group `{name}`: LVM takes letters, digits and `+_.-`, and no `-` at the start"
    )]
    VolumeGroupName { name: String },
    /// A target has a name that initiators do not take.
    #[error(
        "cannot make the iSCSI target `{iqn}`: its name is `iqn.`, a year and a month, a domain backwards, and small \
         letters, digits and `.-:`"
    )]
    TargetName { iqn: String },
    #[error("cannot make the iSCSI target `{iqn}` with {units} units: a target has 1 to 255")]
    TargetUnits { iqn: String, units: u32 },
    #[error("cannot make two iSCSI targets with the name `{iqn}`")]
    TwoTargets { iqn: String },
    /// A disk is too small for its file system.
    #[error("cannot make the disk `{place}`: {fs_type} needs at least {least} MiB")]
    SmallDisk { place: String, fs_type: &'static str, least: u64 },
    /// It starts a controller and names one that runs, or names a driver that runs and starts its controller.
    #[error(
        "cannot use `{path}`: it names a `controller_command` beside a `socket` or `controller_socket`, of which only \
         one can be meant"
    )]
    TwoControllers { path: PathBuf },
    /// A command line of no words.
    #[error("cannot use the command: it is empty")]
    EmptyCommand,
    /// A command line that is given as one text does not end where it should.
    #[error("cannot split the command `{command}`: a quotation mark is never closed")]
    OpenQuote { command: String },
}

/// What is wrong at a place in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    message: String,
    pub(super) hint: Option<String>,
}

impl ManifestError {
    /// What to do about it, as one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { source, .. } => source.hint.clone(),
            Self::NoDriver { .. } => Some(format!("add {EXAMPLE}")),
            Self::TwoDrivers { .. } | Self::TwoRoots { .. } => Some("remove one of the two".to_owned()),
            Self::RootOfRunning { .. } => Some("remove `root` and `image`".to_owned()),
            Self::NoRootForEnv { .. } => {
                Some("name the `root` or `image`, or write the variables below `[env]`".to_owned())
            }
            Self::HostPathsOfRunning { .. } => Some("remove `host_paths`".to_owned()),
            Self::NoHostPath { opened, .. } => {
                Some(format!("make `{}` first, or remove it", opened.display()))
            }
            Self::UnknownPlaceholder { meant: Some(meant), .. } => {
                Some(format!("did you mean `{{{meant}}}`?"))
            }
            Self::UnknownPlaceholder { meant: None, .. } => {
                Some(format!("known here: {}", PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ")))
            }
            Self::PlaceholderOfRun { .. } => Some("move the command to [per_case]".to_owned()),
            Self::FileElsewhere { .. } => {
                Some("write `\"{state}/config.yaml\" = \"…\"`, and give the driver that path".to_owned())
            }
            Self::FixtureElsewhere { key, .. } => Some(format!("write `{key} = \"{{state}}/volumes\"`")),
            Self::FixturesOfRunning => Some(
                "remove `disks`, `volume_groups`, `iscsi_targets` and `nfs_export`, or give a `command` instead of the \
                 `socket`"
                    .to_owned(),
            ),
            Self::FixturesOfEachNode => Some("make them in `prepare`, or use `nodes = 1`".to_owned()),
            Self::VolumeGroupName { .. } => Some("write `name = \"csi-vg\"`".to_owned()),
            Self::TargetName { .. } => Some("write `iqn = \"iqn.2026-01.dev.volproof:disks\"`".to_owned()),
            Self::TargetUnits { .. } => Some("write `units = 1`, or make more targets".to_owned()),
            Self::TwoTargets { .. } => {
                Some("give each an `iqn` of its own, or one of them all the `units`".to_owned())
            }
            Self::SmallDisk { least, .. } => {
                Some(format!("write `size = \"{least}MiB\"`; it takes the room of what is written to it"))
            }
            Self::TwoControllers { .. } => Some("remove one of the two".to_owned()),
            Self::EmptyCommand => {
                Some("write the program and its arguments, `./my-driver {endpoint}`".to_owned())
            }
            Self::Read { path, source } if source.kind() == io::ErrorKind::NotFound => {
                Some(format!("`volproof init {}` writes one with comments", path.display()))
            }
            Self::Read { .. } | Self::OpenQuote { .. } => None,
        }
    }
}

pub(super) fn invalid(text: &str, path: &Path, error: &toml::de::Error) -> ManifestError {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    ManifestError::Invalid {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        source: problem(error.message(), &text[line_start..]),
    }
}

/// Serde says "unknown field `x`, expected one of `a`, `b`"; the reader wants the one that was meant.
fn problem(message: &str, line: &str) -> Problem {
    if line.starts_with("command") && message.contains("expected a sequence") {
        let message = "the command is one string, and a list of words is needed".to_owned();
        return Problem { message, hint: Some(format!("write {EXAMPLE}")) };
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let Some(rest) = message.strip_prefix("unknown field ").and(Some(quoted.as_slice())) else {
        return Problem { message: message.trim().to_owned(), hint: None };
    };
    let (unknown, known) = rest.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
    let hint = match nearest(unknown, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known here: {}", known.join(", ")),
    };
    Problem { message: format!("unknown key `{unknown}`"), hint: Some(hint) }
}
