//! `volproof init`: a commented `driver.toml` to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use clap::Args;

use super::Exit;
use crate::exit_code;

/// Write a commented driver.toml.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Where to write it
    #[arg(default_value = "driver.toml")]
    file: PathBuf,
}

/// What it writes: valid as it stands, but for the command.
const MANIFEST: &str = r#"# What volproof must know about your driver and cannot ask it.
# Capabilities are absent on purpose: they are asked of the driver.

# As in GetPluginInfo; a mismatch is reported first.
name = "my.csi.example.com"

# How it is started. {socket} is a path and {endpoint} its unix:// form, {node} a node name,
# {state} a directory that is empty when a case begins and survives a restart of the driver.
command = ["./my-driver", "--endpoint={endpoint}", "--nodeid={node}"]

# A directory that is its `/`, such as its image unpacked; then the program of `command` is a path in there.
# It shares the node's root with the node, as a pod with bidirectional mount propagation does.
# root = "my-driver-image"

# Instead of `command`, a driver that already runs. It shares your mounts, so cases run one at a time.
# socket = "/run/my-driver/csi.sock"

# A directory whose mounts it shares with the machine, if it does not see them all.
# shared_dir = "/var/lib/kubelet"

# Where the controller service is another process.
# controller_socket = "/run/my-driver/controller.sock"

[volume]
size = "64MiB"
# The first is used unless a case asks for another; without any, the driver chooses.
# fs_types = ["ext4", "xfs"]
# inline = true   # pods may have its volumes inline, without a claim
# Handed to CreateVolume unchanged.
# parameters = { tier = "fast" }
# For drivers without CreateVolume.
# existing = ["vol-a", "vol-b"]

[timeouts]
start = "10s"
call = "30s"

# Files of `key = "value"` lines. Never printed.
# [secrets]
# node_stage = "secrets/stage.toml"

# Cases that are known to fail, and why. Passing anyway fails the run.
# [expected_failures]
# "csi::publish::read_only" = "our issue 41"
"#;

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let path = flags.file.display();
    let mut file = OpenOptions::new().write(true).create_new(true).open(&flags.file).map_err(|error| {
        match error.kind() {
            ErrorKind::AlreadyExists => Exit::usage(format!("`{path}` exists already, and is kept as it is")),
            _ => Exit::environment(format!("cannot create `{path}`")).details([error.to_string()]),
        }
    })?;
    file.write_all(MANIFEST.as_bytes())
        .map_err(|error| Exit::environment(format!("cannot write `{path}`")).details([error.to_string()]))?;
    println!("wrote {path}\n\n  next: fill in `command`, then run\n    volproof run --driver {path}");
    Ok(exit_code::OK)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use harness::manifest::Manifest;

    #[test]
    fn what_it_writes_is_a_manifest() {
        Manifest::parse(super::MANIFEST, Path::new("driver.toml")).expect("valid as it stands");
    }

    /// The commented lines, with their `#` taken away, must be valid too, or they teach mistakes.
    #[test]
    fn what_it_suggests_is_a_manifest() {
        let key = |line: &&str| line.contains(" = ") || line.starts_with("# [");
        let lines = super::MANIFEST.lines().map(|line| match line.strip_prefix("# ") {
            Some(rest) if key(&line) && !rest.starts_with("socket") && !rest.starts_with("Files") => rest,
            _ => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        Manifest::parse(&text, Path::new("driver.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}
