//! What the suite must know about a driver and cannot ask it: `driver.toml`.
//!
//! Reads the manifest and the secret files it names, and nothing else.

mod command;
mod error;
mod expected;
mod fixtures;
mod nearest;
mod preparation;
mod quantity;
#[cfg(test)]
mod reference;
mod secrets;
mod testdriver;
mod volume;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use fake_csi::Sabotage;
use serde::{Deserialize, Serialize};

pub use error::{ManifestError, Problem};
pub use expected::{Day, ExpectedFailure};
pub use fixtures::{Disk, IscsiTarget, VolumeGroup};
pub use nearest::nearest;
pub use preparation::{Placeholders, Preparation};
pub use quantity::{QuantityError, Size, Span};
pub use secrets::{Secrets, Sensitive};
pub use testdriver::TestDriverError;
pub use volume::{ExistingVolume, VolumeSettings};

use crate::yaml;
use command::split;
use error::invalid;

/// A driver, as its author describes it. Reading makes its paths absolute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name the driver must answer with. Asked of the driver when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it is started, with the placeholders `{socket}`, `{endpoint}`, `{node}` and `{state}`. With an `image`, words
    /// that begin with `-` or a placeholder are arguments for the image's entrypoint, and without `command` the image is
    /// started as it says itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The driver's container image, which becomes its `root`: an OCI image layout (a directory, or a tarball of one), an
    /// archive of `docker save`, or a tarball of a root file system. What the image says of command, environment and
    /// working directory counts where the manifest says nothing; its user does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<PathBuf>,
    /// The driver's `/`, such as its unpacked image: the program is looked for there, and the driver
    /// also sees the node's root, `{state}`, `/dev`, `/proc` and `/sys`. Commands that prepare see it at `{root}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Variables in the environment of the driver in its `root`, and not of the commands below. `env` wins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub root_env: BTreeMap<String, String>,
    /// The directory that it runs in: a path in its `root` if it has one. `{state}` in it is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The socket of a driver that already runs, instead of `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// How the controller service is started, where that is a process of its own. Its `{socket}` is another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controller_command: Vec<String>,
    /// Variables in the environment of the driver and of the commands below.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Texts of files below `{state}`, written before anything is started. Placeholders in them are replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Disks of the machine, each with an empty file system that is mounted before the driver starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Volume groups of LVM, each on a disk of its own, there before the driver starts, in a guest (`--tier vm`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_groups: Vec<VolumeGroup>,
    /// iSCSI targets at 127.0.0.1:3260, each with disks, and the initiator's daemon, before the driver starts, in a guest
    /// (`--tier vm`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iscsi_targets: Vec<IscsiTarget>,
    /// A directory that an NFS server exports, in a guest (`--tier vm`): at 127.0.0.1, as `/` to clients of version 4 and
    /// by its path to those of version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs_export: Option<String>,
    /// Commands around each case, where the driver runs.
    #[serde(default, skip_serializing_if = "Preparation::is_empty")]
    pub per_case: Preparation,
    /// Commands around the run, on the machine itself.
    #[serde(default, skip_serializing_if = "Preparation::is_empty")]
    pub per_run: Preparation,
    /// The socket of the controller service, where that is another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_socket: Option<PathBuf>,
    /// For a driver that already runs and does not see all of the machine's mounts: a directory whose mounts it
    /// shares with the machine, such as `/var/lib/kubelet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_dir: Option<PathBuf>,
    /// Files, directories and devices of the machine that the driver may change. Other changes outside of
    /// `{state}` and the node's root are discarded and reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_paths: Vec<PathBuf>,
    /// A Kubernetes API for a driver that is a client of it: the driver finds it as in a pod, or by `{kubeconfig}`. Without
    /// this table `{kubeconfig}` is an API without objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// The most nodes that a case may have at once.
    #[serde(default = "default_node_count", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// Whether the driver has one `{state}` for all nodes, or one for each.
    #[serde(default, skip_serializing_if = "State::is_shared")]
    pub state: State,
    /// Whether volumes live outside `{state}`, in a cloud or a pool that all cases share: cases then go one at a
    /// time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared_backend: bool,
    /// The properties of volumes.
    #[serde(default)]
    pub volume: VolumeSettings,
    /// Ids of volumes and nodes that do not exist, in the form of the driver's ids.
    #[serde(default)]
    pub unknown_ids: UnknownIds,
    /// What the driver needs when cases run in a virtual machine.
    #[serde(default)]
    pub guest: Guest,
    /// How long the driver may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Files with the secrets of each kind of call: TOML, `key = "value"`.
    #[serde(default)]
    pub secrets: Secrets,
    /// Cases that are known to fail, each with the reason, and with the last day on which it may if there is one. If one
    /// passes, the run fails.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected_failures: BTreeMap<String, ExpectedFailure>,
}

/// The `{state}` of a driver that is started for several nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// One directory, from which each node's driver serves the same volumes.
    #[default]
    Shared,
    /// A directory for each node: a volume stays on the node where it was made.
    PerNode,
}

impl State {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_shared(&self) -> bool {
        *self == Self::Shared
    }
}

/// Ids that name nothing, for drivers whose ids have a form: a number, a prefix, a UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UnknownIds {
    /// A volume that does not exist.
    pub volume: String,
    /// A node that does not exist.
    pub node: String,
}

impl Default for UnknownIds {
    fn default() -> Self {
        Self { volume: "no-such-volume".to_owned(), node: "no-such-node".to_owned() }
    }
}

/// The API that a driver is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kubernetes {
    /// The namespace that the driver lives in.
    pub namespace: String,
    /// Files with objects that are there before it starts: its CustomResourceDefinitions and its configuration.
    pub objects: Vec<PathBuf>,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self { namespace: "default".to_owned(), objects: Vec::new() }
    }
}

/// What a virtual machine must be given for this driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Files and directories of this machine that the driver needs in there, beside its program: what it calls, and the
    /// modules of a script. A program brings its libraries, and a script its interpreter.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Modules of the guest's kernel that are loaded when it boots, beside those for file systems, NFS, iSCSI, device mapper,
    /// loop devices and FUSE, which it has anyway.
    #[serde(default)]
    pub modules: Vec<String>,
}

/// How long the driver may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// Until it answers `Probe`.
    #[serde(default = "ten_seconds")]
    pub start: Span,
    /// For one call.
    #[serde(default = "thirty_seconds")]
    pub call: Span,
    /// For each command that prepares or cleans up.
    #[serde(default = "thirty_seconds")]
    pub prepare: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { start: ten_seconds(), call: thirty_seconds(), prepare: thirty_seconds() }
    }
}

impl Manifest {
    /// Reads `driver.toml`. Relative paths in it are relative to its directory.
    ///
    /// # Errors
    /// When it cannot be read, or says something it has no place for.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        Self::read_with_image(path, None)
    }

    /// As [`Manifest::read`], with an image in place of the driver's root and image.
    ///
    /// # Errors
    /// When it cannot be read, or says something it has no place for.
    pub fn read_with_image(path: &Path, image: Option<&Path>) -> Result<Self, ManifestError> {
        let failed = |source| ManifestError::Read { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(failed)?;
        let directory = std::path::absolute(path).map_err(failed)?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        let text = yaml::without_mark(&text);
        let mut manifest: Self = toml::from_str(text).map_err(|error| invalid(text, path, &error))?;
        if let Some(image) = image {
            let image = std::path::absolute(image).map_err(failed)?;
            (manifest.root, manifest.image) = (None, Some(image));
        }
        let mut manifest = manifest.checked(path)?;
        manifest.resolve(directory);
        match manifest.host_paths.iter().find(|opened| !opened.exists()) {
            Some(opened) => Err(ManifestError::NoHostPath { path: path.to_owned(), opened: opened.clone() }),
            None => Ok(manifest),
        }
    }

    /// A manifest from its text. Paths stay as they are; `path` is for messages.
    ///
    /// # Errors
    /// When the text says something a manifest has no place for.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ManifestError> {
        let manifest: Self = toml::from_str(text).map_err(|error| invalid(text, path, &error))?;
        manifest.checked(path)
    }

    fn checked(self, path: &Path) -> Result<Self, ManifestError> {
        let manifest = self;
        manifest.check_placeholders()?;
        manifest.check_fixtures()?;
        if manifest.root.is_some() && manifest.image.is_some() {
            return Err(ManifestError::TwoRoots { path: path.to_owned() });
        }
        if !manifest.root_env.is_empty() && manifest.root.is_none() && manifest.image.is_none() {
            return Err(ManifestError::NoRootForEnv { path: path.to_owned() });
        }
        if manifest.starts_controller() && (manifest.socket.is_some() || manifest.controller_socket.is_some())
        {
            return Err(ManifestError::TwoControllers { path: path.to_owned() });
        }
        match (manifest.command.is_empty(), manifest.socket.is_some()) {
            (true, false) if manifest.image.is_none() => {
                Err(ManifestError::NoDriver { path: path.to_owned() })
            }
            (false, true) => Err(ManifestError::TwoDrivers { path: path.to_owned() }),
            (true, true) if manifest.root.is_some() || manifest.image.is_some() => {
                Err(ManifestError::RootOfRunning { path: path.to_owned() })
            }
            (true, true) if !manifest.host_paths.is_empty() => {
                Err(ManifestError::HostPathsOfRunning { path: path.to_owned() })
            }
            _ => Ok(manifest),
        }
    }

    /// The manifest of a driver of which only the command line is known, written as for a shell.
    ///
    /// # Errors
    /// When a quotation mark is never closed.
    pub fn from_command(command: &str) -> Result<Self, ManifestError> {
        Self::from_command_with_image(command, None)
    }

    /// As [`Manifest::from_command`]; with an image the program is a path in that.
    ///
    /// # Errors
    /// When a quotation mark is never closed.
    pub fn from_command_with_image(command: &str, image: Option<&Path>) -> Result<Self, ManifestError> {
        let words = split(command).ok_or_else(|| ManifestError::OpenQuote { command: command.to_owned() })?;
        if words.is_empty() {
            return Err(ManifestError::EmptyCommand);
        }
        let mut manifest = Self { command: words, image: image.map(Path::to_owned), ..Self::bare() };
        manifest.check_placeholders()?;
        if let Ok(here) = std::env::current_dir() {
            manifest.resolve(&here);
        }
        Ok(manifest)
    }

    /// The manifest of a driver of which only the image is known.
    pub fn from_image(image: &Path) -> Self {
        let image = std::path::absolute(image).unwrap_or_else(|_| image.to_owned());
        Self { image: Some(image), ..Self::bare() }
    }

    /// The manifest of a driver that already runs.
    pub fn from_socket(socket: &Path) -> Self {
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        Self { socket: Some(socket), ..Self::bare() }
    }

    /// The manifest of the driver inside this binary, with more arguments for it.
    pub fn fake_csi(arguments: &[String]) -> Self {
        let mut command: Vec<String> =
            ["/proc/self/exe", "__fake-csi", "--endpoint={endpoint}", "--node={node}", "--state-dir={state}"]
                .map(str::to_owned)
                .into();
        command.extend_from_slice(arguments);
        let is_limited =
            arguments.iter().any(|word| word.starts_with("--max-volumes") || word == "--hostpath");
        command.extend((!is_limited).then(|| format!("--max-volumes={MOST_VOLUMES}")));
        let on_disks = !arguments.iter().any(|word| word.starts_with("--backing") || word == "--hostpath");
        let fs_types =
            if on_disks { vec!["ext4".to_owned(), "btrfs".to_owned(), "xfs".to_owned()] } else { vec![] };
        let mutable_parameters = match on_disks {
            true => [("tier".to_owned(), "gold".to_owned())].into(),
            false => BTreeMap::new(),
        };
        let fuse_parameters = match arguments.iter().any(|word| word == "--hostpath") {
            true => BTreeMap::new(),
            false => [("backing".to_owned(), "fuse".to_owned())].into(),
        };
        let volume = VolumeSettings {
            inline: true,
            fs_types,
            fuse_parameters,
            mutable_parameters,
            ..VolumeSettings::default()
        };
        // `--hostpath` keeps its books in its process, so two nodes would not share volumes.
        let nodes = if arguments.iter().any(|word| word == "--hostpath") { 1 } else { 2 };
        Self { command, volume, nodes, ..Self::bare() }
    }

    /// Whether the driver is not started by volproof.
    pub fn is_running_already(&self) -> bool {
        self.socket.is_some()
    }

    /// Whether another node may be started beside the first, and both reach the same volumes.
    pub fn has_other_node(&self) -> bool {
        self.nodes > 1 && self.state == State::Shared && !self.is_running_already()
    }

    /// Whether another node may be started beside the first, and neither reaches the volumes of the other.
    pub fn has_nodes_apart(&self) -> bool {
        self.nodes > 1 && self.state == State::PerNode && !self.is_running_already()
    }

    /// The size volumes are made with.
    pub fn volume_size(&self) -> u64 {
        self.volume.size.map_or(DEFAULT_SIZE, Size::bytes)
    }

    /// How long the driver may take until it answers.
    pub fn start_timeout(&self) -> Duration {
        self.timeouts.start.duration()
    }

    /// How long one call may take.
    pub fn call_timeout(&self) -> Duration {
        self.timeouts.call.duration()
    }

    /// How long a command that prepares or cleans up may take.
    pub fn prepare_timeout(&self) -> Duration {
        self.timeouts.prepare.duration()
    }

    /// Whether the controller service is a process of its own.
    pub fn starts_controller(&self) -> bool {
        !self.controller_command.is_empty()
    }

    /// Whether the driver gets its socket: by this command, a variable or a file.
    pub fn names_the_socket(&self, command: &[String]) -> bool {
        command
            .iter()
            .chain(self.env.values())
            .chain(self.files.values())
            .any(|word| word.contains("{socket}") || word.contains("{endpoint}"))
    }

    fn bare() -> Self {
        Self { nodes: 1, ..Self::default() }
    }

    fn resolve(&mut self, directory: &Path) {
        // With a `root` or an `image`, the program is a path in it.
        if self.root.is_none() && self.image.is_none() {
            command::resolve(&mut self.command, directory);
            command::resolve(&mut self.controller_command, directory);
            if let Some(own) = self.directory.as_mut().filter(|own| !own.starts_with('{')) {
                *own = directory.join(&*own).to_string_lossy().into_owned();
            }
        }
        self.per_case.resolve(directory);
        self.per_run.resolve(directory);
        let Self { root, image, socket, controller_socket, shared_dir, .. } = self;
        let paths = [root, image, socket, controller_socket, shared_dir];
        for path in paths.into_iter().flatten() {
            *path = directory.join(&*path);
        }
        let objects = self.kubernetes.iter_mut().flat_map(|kubernetes| &mut kubernetes.objects);
        for file in self.guest.files.iter_mut().chain(&mut self.host_paths).chain(objects) {
            *file = directory.join(&*file);
        }
        let of_volumes = self.volume.existing.iter_mut().filter_map(|volume| volume.secrets.as_mut());
        for secrets in of_volumes.chain([&mut self.secrets]) {
            secrets.resolve(directory);
        }
    }

    /// The files with secrets: those for all volumes, and those for one.
    pub fn all_secrets(&self) -> impl Iterator<Item = &Secrets> {
        let of_volumes = self.volume.existing.iter().filter_map(|volume| volume.secrets.as_ref());
        of_volumes.chain([&self.secrets])
    }
}

/// The limit of volumes on a node of fake-csi: no case attaches more, except the one about the limit.
const MOST_VOLUMES: u32 = 12;

/// Large enough for any file system (for xfs with older tools only), and small enough to be quick.
const DEFAULT_SIZE: u64 = 64 << 20;

fn default_node_count() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_one(nodes: &u32) -> bool {
    *nodes == 1
}

fn ten_seconds() -> Span {
    Span::new(Duration::from_secs(10))
}

fn thirty_seconds() -> Span {
    Span::new(Duration::from_secs(30))
}

#[cfg(test)]
mod tests;
