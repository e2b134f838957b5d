//! `volproof init`: writes a commented `driver.toml`: a template, or a manifest made from the driver's answers or from its
//! deployment files.

mod asked;
mod deployment;
mod from;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use clap::Args;
use harness::manifest::{Manifest, ManifestError};

use super::Exit;
use crate::terminal::say;
use runner::{exit_code, program};

/// Write a commented driver.toml.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Where to write it
    #[arg(default_value = "driver.toml")]
    file: PathBuf,
    /// A directory with the driver's deployment files: CSIDriver, StorageClass, DaemonSet
    #[arg(long, value_name = "DIR", conflicts_with = "driver_cmd")]
    from: Option<PathBuf>,
    /// The driver's command line: it is started, and asked what it is
    #[arg(long, value_name = "CMD", allow_hyphen_values = true)]
    driver_cmd: Option<String>,
    /// The driver's container image, alone or beside --driver-cmd
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    image: Option<PathBuf>,
}

/// The template: a valid manifest, except that the command does not exist.
const MANIFEST: &str = r#"# What volproof must know about your driver and cannot ask it.
# Capabilities are absent on purpose: they are asked of the driver.

# As in GetPluginInfo; a mismatch is reported first.
name = "my.csi.example.com"

# How it is started. {socket} is a path and {endpoint} its unix:// form, {node} a node name,
# {state} a directory that is empty when a case begins and survives a restart of the driver.
command = ["./my-driver", "--endpoint={endpoint}", "--nodeid={node}"]

# Its controller service, where that is a program of its own: {socket} and {endpoint} are then another socket.
# controller_command = ["./my-controller", "--endpoint={endpoint}"]

# Its container image: an OCI image layout, an archive of `docker save`, or a tarball of a root file system. `command` is
# then a program in there, or, if it begins with `-`, arguments for its entrypoint; without `command` it starts as it says.
# It shares the node's root with the node, as a pod with bidirectional mount propagation does.
# image = "my-driver.tar"

# For an image that is unpacked already, `root = "my-driver-image"` names its directory, and [root_env] has variables of
# the driver alone, such as its PATH.

# Files, directories and devices of this machine that it may change. What it writes anywhere else beside {state} and
# the node's root is thrown away and reported; /tmp, /run and /dev are its own.
# host_paths = ["/data", "/dev/nbd0"]

# Instead of `command`, a driver that already runs. It shares your mounts, so cases run one at a time.
# socket = "/run/my-driver/csi.sock"

# A directory whose mounts it shares with the machine, if it does not see them all.
# shared_dir = "/var/lib/kubelet"

# Where the controller service is another process.
# controller_socket = "/run/my-driver/controller.sock"

# The directory that it runs in; in its `root`, if it has one.
# directory = "{state}"

# It may be started once more beside itself, for a second node. With the state "shared" both have the same {state} and
# reach the same volumes; with "per_node" each has its own.
# nodes = 2
# state = "shared"

# Volumes live outside {state}, in a cloud or a pool that all cases would share: cases go one at a time.
# shared_backend = true

# A directory that an NFS server exports to it at 127.0.0.1; only with `--tier vm`.
# nfs_export = "{state}/export"

# A volume group of LVM on a disk of its own; only with `--tier vm`.
# [[volume_groups]]
# name = "csi-vg"
# size = "512MiB"

# An iSCSI target at 127.0.0.1:3260 with disks, LUN 1 and the following, and an initiator; only with `--tier vm`.
# [[iscsi_targets]]
# iqn = "iqn.2026-01.dev.volproof:disks"
# units = 4
# size = "64MiB"

# Variables of the driver and of the commands below.
# [env]
# NODE_NAME = "{node}"

# Files below {state} that are written before the driver starts; placeholders in them are replaced, too.
# [files]
# "{state}/config.yaml" = "node: {node}"

# Disks that it keeps its volumes on, each with an empty file system, mounted before `prepare`.
# [[disks]]
# path = "{state}/volumes"
# fs_type = "xfs"
# size = "512MiB"
# options = ["prjquota"]

# Commands before the driver starts and after it has ended, in each case and in its sandbox, in the directory {state}.
# What they begin in the background ends with the case. `cleanup` also runs when `prepare` has failed; after the death
# of a run it runs on the machine, so that it has to bear that nothing, or half of it, is there.
# [per_case]
# prepare = ["sh", "-c", "mkdir -p volumes"]
# cleanup = ["sh", "-c", "rm -rf volumes"]

# The same once before and after all cases, on the machine itself and without placeholders.
# [per_run]
# prepare = ["./start-cloud.sh"]
# cleanup = ["./stop-cloud.sh"]

# A driver that is a client of Kubernetes gets an API by this table: it finds it as in a pod, by the variables and the
# files of its service account, or by {kubeconfig}, in the command, in [env] or in [files]: the path of a file that says
# how to reach it. What it writes there is in the trace of the case. `objects` are there before it starts.
# [kubernetes]
# namespace = "kube-system"
# objects = ["deploy/crds.yaml"]

[volume]
size = "64MiB"
# The first is used unless a case asks for another; without any, the driver chooses.
# fs_types = ["ext4", "xfs"]
# Mount options of every volume with a file system, as a StorageClass has them.
# mount_options = ["nfsvers=4.1"]
# Handed to CreateVolume unchanged.
# parameters = { tier = "fast" }
# More of them for a volume that a daemon of the driver's own serves through FUSE, if not all volumes are such.
# fuse_parameters = { mounter = "s3fs" }
# Parameters that ControllerModifyVolume takes, with a value that each may have.
# mutable_parameters = { tier = "slow" }
# Whether there are raw block volumes, and volumes with a file system. Asked with CreateVolume if it is not said.
# block = false
# file_system = true
# A volume begins empty and keeps what pods write; say false for content (secrets, images) and scratch space.
# persistent = true
# For drivers without CreateVolume. A table instead of an id says more, as a PersistentVolume does:
# { handle = "share-1", context = { server = "10.0.0.1", share = "/a" }, fs_type = "ext4",
#   access_modes = ["ReadWriteMany"], secrets = { node_stage = "secrets/share-1.toml" } }
# existing = ["vol-a", "vol-b"]
# Pods may have its volumes inline, without a claim, and these attributes are theirs.
# inline = true
# inline_attributes = { image = "registry.example.com/data:1" }
# Inline volumes are published for reading only, for a driver that refuses any other.
# inline_read_only = true

# Ids of the form that yours have, for things that do not exist.
# [unknown_ids]
# volume = "vol-00000000"
# node = "4294967295"

# What it needs of this machine in a guest (`--tier vm`) beside its own program: the programs that it calls, and the
# modules of a script. Programs bring their libraries, and scripts their interpreter.
# [guest]
# files = ["/usr/sbin/mkfs.ext4", "/usr/lib/python3"]

[timeouts]
start = "10s"
call = "30s"
# Of each command in [per_case] and [per_run].
# prepare = "30s"

# Files of `key = "value"` lines. Never printed.
# [secrets]
# node_stage = "secrets/stage.toml"

# Cases that are known to fail, and why. Passing anyway fails the run; after the day `until`, failing does.
# [expected_failures]
# "csi::publish::read_only_claim_cannot_be_written" = { reason = "our issue 41", until = "2027-03-31" }
"#;

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let path = flags.file.display();
    if flags.file.exists() {
        return Err(Exit::usage(format!("`{path}` exists already, and is kept as it is")));
    }
    let text = text(flags)?;
    let commented = text.lines().filter(|line| line.starts_with("# - ")).map(str::to_owned);
    let commented: Vec<String> = commented.collect();
    let mut file = OpenOptions::new().write(true).create_new(true).open(&flags.file).map_err(|error| {
        match error.kind() {
            ErrorKind::AlreadyExists => Exit::usage(format!("`{path}` exists already, and is kept as it is")),
            _ => Exit::environment(format!("cannot create `{path}`")).details([error.to_string()]),
        }
    })?;
    file.write_all(text.as_bytes())
        .map_err(|error| Exit::environment(format!("cannot write `{path}`")).details([error.to_string()]))?;
    commented.iter().for_each(|line| say!("  {}", &line[4..]));
    let next = if flags.driver_cmd.is_some() || flags.image.is_some() {
        "run"
    } else {
        "look at `command`, then run"
    };
    say!("wrote {path}\n\n  next: {next}\n    {} run --driver {path}", program::name());
    Ok(exit_code::OK)
}

/// The text of the new manifest.
fn text(flags: &Flags) -> Result<String, Exit> {
    let unusable = |error: ManifestError| Exit::usage(error.to_string()).maybe_hint(error.hint());
    let image = flags.image.as_deref();
    match (&flags.from, &flags.driver_cmd, image) {
        (Some(directory), ..) => from::manifest(directory).map_err(|error| {
            Exit::usage(format!("cannot read `{}`", directory.display())).details([error.to_string()])
        }),
        (None, Some(command), _) => {
            asked::manifest(&Manifest::from_command_with_image(command, image).map_err(unusable)?)
        }
        (None, None, Some(image)) => asked::manifest(&Manifest::from_image(image)),
        (None, None, None) => Ok(MANIFEST.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Manifest;

    #[test]
    fn template_is_a_valid_manifest() {
        Manifest::parse(super::MANIFEST, Path::new("driver.toml")).expect("valid as it stands");
    }

    #[test]
    fn template_with_its_examples_uncommented_is_a_valid_manifest() {
        let example = |line: &str| {
            let key = line.split(" = ").next().unwrap_or_default();
            let is_key = !key.contains(' ') && line.contains(" = ");
            // A manifest has either these sockets or a command.
            let runs_already = matches!(key, "socket" | "controller_socket");
            (is_key && !runs_already) || (line.starts_with('[') && line.ends_with(']'))
        };
        let lines = super::MANIFEST.lines().map(|line| match line.strip_prefix("# ") {
            Some(rest) if example(rest) => rest,
            _ => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        assert!(text.contains("\nblock = false") && text.contains("\n[unknown_ids]"), "{text}");
        Manifest::parse(&text, Path::new("driver.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}
