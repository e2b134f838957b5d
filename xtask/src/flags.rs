//! The command line: what `cargo xtask` understands, and the help it prints.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// The commands of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
#[command(
    after_help = "`conformance` and `test` are all most people need. Each command has a --help of its own."
)]
pub(crate) struct Xtask {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build volproof and run its cases against a driver
    Conformance(Conformance),
    /// Run everything CI runs on this machine, and count it
    Test(Test),
    /// Run one lane of CI
    Ci(Ci),
    /// Run every case on every kernel, in guests, and write one matrix of it
    Nightly(Nightly),
    /// Check the rules of this repository
    Tidy,
    /// Write the skeleton of a case
    NewCase(NewCase),
    /// Build what people install: a tarball, a Debian package and a container image
    Package(Package),
    /// Build the documents as one site with a search, which opens without a network
    Site(Site),
    /// Measure pods, manager, controllers, harness and suite, beside floors and peers
    Bench(Bench),
}

/// Build volproof and run its cases: every argument goes to `volproof run`.
///
/// With no arguments the driver is fake-csi, the one that comes with this repository.
/// `cargo xtask conformance -- --help` shows what `volproof run` understands.
/// The exit code is that of `volproof run`, or 4 if it could not be built.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Conformance {
    /// Never install system packages: name the command that would, instead
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Handed to `volproof run` as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<OsString>,
}

/// Formatting, lints, repository rules, unit and product tests, and the cases against fake-csi.
///
/// As root the cases run on the host tier, else on the rootless one; what that leaves out is said.
/// The last line is `N passed, N failed, N skipped`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Test {
    /// Run tests in full that a push runs in part; without it, what they leave out is listed
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Never install system packages: name the command that would, instead
    #[arg(long)]
    pub(crate) no_install: bool,
}

/// One lane of CI. The lanes carry the names of the tiers.
#[derive(Debug, Args)]
pub(crate) struct Ci {
    /// Which lane
    pub(crate) lane: LaneName,
    /// Never install system packages: name the command that would, instead
    #[arg(long)]
    pub(crate) no_install: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaneName {
    /// Formatting, lints, repository rules, unit tests
    Check,
    /// The cases that need no root, in a user namespace
    Rootless,
    /// The product tests, and all cases on this kernel: needs root
    Host,
    /// All cases in a guest, on each of its kernels
    Vm,
    /// Succeeds only if each lane in $NEEDS did (GitHub's `toJSON(needs)`)
    Gate,
}

impl LaneName {
    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Build volproof, fetch the kernels of guests, and run all cases on each.
///
/// Leaves `KERNEL/junit.xml`, `summary.md` and `matrix.json` in `target/xtask/nightly`. The exit code is 0 if
/// every case of every kernel passed or was skipped, 1 if one did not, 4 if a kernel could not be run.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Nightly {
    /// Never install system packages: name the command that would, instead
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Only these kernels: a name, or a FILE.deb
    #[arg(long)]
    pub(crate) kernel: Vec<String>,
    /// Handed to `volproof run` as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<OsString>,
}

/// Write the skeleton of a case, ready to be filled in.
#[derive(Debug, Args)]
pub(crate) struct NewCase {
    /// Where it belongs: `csi::block`, or `csi::block::teardown_is_the_reverse_of_setup`
    pub(crate) case: String,
}

/// Build volproof in release, and pack it with its manual page and completions.
///
/// Writes `volproof-VERSION-linux-ARCHITECTURE.tar.gz`, `volproof_VERSION_ARCHITECTURE.deb`, and the OCI layout
/// `volproof-VERSION-image`. The image is made by mmdebstrap and umoci, with packages of Debian.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Package {
    /// Never install system packages: name the command that would, instead
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Write there; `target/package` if it is not given
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Pack this program, which has to be linked statically, and build none
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
    /// Put the image upon this root file system, a tar archive, and not upon a Debian
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
    /// Write only this; can be given more than once
    #[arg(long, value_name = "PART")]
    pub(crate) only: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Tar,
    Deb,
    Image,
}

/// Write all documents, every case and every promise as one static site.
///
/// `index.html` opens from a disk, without a network and without a server, and finds words on all pages.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Site {
    /// Write there; `target/site` if it is not given
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Ask this program for cases and promises, and build none
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
}

/// Build measuring programs in release, run them, and print one table of all they have measured.
///
/// Each figure is the median of interleaved rounds, with its quartiles, beside the least that the same work costs
/// (the floor) where that can be measured. Ratios travel between machines, times do not. docs/speed.md has the aims.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bench {
    /// What to measure; `pod` if nothing is named
    pub(crate) subjects: Vec<Subject>,
    /// Write all rows there, with machine, date and commit
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Compare with the rows of an earlier --json, and name what is slower
    #[arg(long, value_name = "FILE")]
    pub(crate) since: Option<PathBuf>,
    /// Draw the rows beside their floors, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,
    /// Measure what is there beside ours: `csi-sanity`, `driver.toml`, `kubernetes.jsonl`
    #[arg(long, value_name = "DIR")]
    pub(crate) peers: Option<PathBuf>,
    /// Rounds of each measurement, instead of as many as each needs; with 1 or 2 large sizes are left out
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Never install system packages: name the command that would, instead
    #[arg(long)]
    pub(crate) no_install: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// Pods in and out, beside a bare loop of the same calls: needs root
    Pod,
    /// How the manager's own costs grow with its volumes
    Manager,
    /// One change among many objects, for each controller and the API in memory
    Cluster,
    /// Sandbox, recorder, proxy and programmable disk: needs root
    Harness,
    /// `volproof run` with fake-csi, whole and by kind of case: needs root
    Suite,
    /// The simulation, `check`, and reports of long traces
    Sim,
    /// What `volproof watch` costs a node: needs root
    Watch,
    /// Volumes that no driver makes, and the host's calls: needs root
    Plugins,
    /// All of these
    All,
}
