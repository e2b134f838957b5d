//! A look at everything at one moment. Reads the node's directory, the kernel's tables and the api.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use api::{Bytes, Claim};
use harness::loop_device::table;
use harness::observe;
use serde_json::{Map, Value, json};

use super::world::{World, or_null};

impl World {
    /// Records mounts, actual state and desired state under this label.
    pub(super) async fn snapshot(&mut self, label: &str) {
        // A node that is dead believes nothing.
        let dump = self.node.dump().await.unwrap_or_default();
        let root = self.layout.root();
        let mounts = observe::snapshot().unwrap_or_default();
        let mut lines: Vec<String> = (mounts.iter())
            .filter(|mount| mount.target.starts_with(root) && mount.target != root)
            .map(|mount| self.log.mount_line(mount))
            .collect();
        lines.sort();
        let points: Vec<PathBuf> = mounts.into_iter().map(|mount| mount.target).collect();
        let mut walk = Walk { root: root.to_owned(), points, tree: Vec::new(), vol_data: Map::new() };
        walk.see(root, false);
        let snapshot = json!({
            "asw": self.states(dump.actual),
            "dsw": self.states(dump.desired),
            "label": label,
            "loop_devices": or_null(self.loop_devices()),
            "mounts": or_null(lines),
            "pvcs": or_null(self.api_server.list::<Claim>().iter().map(|claim| status(claim)).collect::<Vec<_>>()),
            "tree": walk.tree,
            "vol_data": walk.vol_data,
        });
        self.log.add_line("snapshot", snapshot);
    }

    fn states(&self, states: BTreeMap<String, String>) -> Value {
        states.into_iter().map(|(key, state)| (key, Value::String(state))).collect::<Map<_, _>>().into()
    }

    /// Loop devices over files of this run, and those that lock them.
    fn loop_devices(&self) -> Vec<String> {
        let all = table::bound();
        let mut ours = table::lying_on(&all, |bound| self.devices.contains(&bound.device));
        ours.sort_by_key(|bound| bound.number);
        let line = |bound: &table::BoundLoop| {
            let path = bound.backing.display();
            format!("/dev/loop{}: [{:04}]:{} ({path})", bound.number, bound.device, bound.inode)
        };
        ours.iter().map(line).collect()
    }
}

/// A claim as Kubernetes shows its status.
fn status(claim: &Claim) -> Value {
    let modes: Vec<String> = claim.spec.access_modes.iter().map(|mode| format!("{mode:?}")).collect();
    let mut status = json!({ "phase": format!("{:?}", claim.status.phase), "accessModes": modes });
    let storage = |bytes: Bytes| json!({ "storage": bytes.to_string() });
    if !claim.status.capacity.is_zero() {
        status["capacity"] = storage(claim.status.capacity);
    }
    if !claim.status.conditions.is_empty() {
        let condition = |condition: &api::storage::Condition| {
            let mut fields = json!({
                "type": condition.kind, "status": condition.status,
                "lastProbeTime": null, "lastTransitionTime": null,
            });
            if !condition.message.is_empty() {
                fields["message"] = json!(condition.message);
            }
            fields
        };
        status["conditions"] = claim.status.conditions.iter().map(condition).collect();
    }
    if let Some(allocated) = claim.status.allocated {
        status["allocatedResources"] = storage(allocated);
    }
    if !claim.status.resize.is_empty() {
        status["allocatedResourceStatuses"] = json!({ "storage": claim.status.resize });
    }
    json!({ "name": claim.meta.name, "status": status })
}

/// A walk through the node's directory, as the recordings show it.
struct Walk {
    root: PathBuf,
    points: Vec<PathBuf>,
    tree: Vec<String>,
    vol_data: Map<String, Value>,
}

impl Walk {
    /// Only the top level of a mount is recorded: the files below are data of a pod.
    fn see(&mut self, path: &Path, inside: bool) {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        let name = self.name(path);
        if self.is_left_out(path, &name) {
            return;
        }
        let is_mount = path != self.root && self.points.iter().any(|point| point == path);
        let mut line = format!("{name} {} {}:{}", mode(&found), found.uid(), found.gid());
        if inside {
            line += " (inside the mount)";
        } else if is_mount {
            line += " [mount]";
        } else if found.is_symlink() {
            let target = fs::read_link(path).unwrap_or_default();
            line += &format!(" -> {}", target.display());
        }
        self.tree.push(line);
        if !inside && found.is_file() && path.file_name().is_some_and(|name| name == "vol_data.json") {
            let text = fs::read(path).unwrap_or_default();
            let data = serde_json::from_slice(&text)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&text).into_owned()));
            self.vol_data.insert(name, data);
        }
        if found.is_dir() && !inside {
            for child in children(path).unwrap_or_default() {
                self.see(&child, is_mount);
            }
        }
    }

    fn name(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(below) if below.as_os_str().is_empty() => String::new(),
            Ok(below) => format!("/{}", below.display()),
            Err(_) => path.display().to_string(),
        }
    }

    /// Whether a path is one that every node has and the recordings have not: there no driver was registered through a
    /// directory, and pods had no directory for markers before the first marker.
    fn is_left_out(&self, path: &Path, name: &str) -> bool {
        let parts: Vec<&str> = name.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["plugins_registry", ..] => true,
            ["pods", _, "plugins"] => children(path).is_ok_and(|children| children.is_empty()),
            _ => false,
        }
    }
}

fn children(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut children: Vec<PathBuf> =
        fs::read_dir(path)?.filter_map(Result::ok).map(|entry| entry.path()).collect();
    children.sort();
    Ok(children)
}

/// A mode as the recordings write it.
fn mode(found: &fs::Metadata) -> String {
    let (kind, bits) = (found.file_type(), found.mode());
    let mut text = String::new();
    let flags = [
        (kind.is_dir(), "d"),
        (kind.is_symlink(), "L"),
        (kind.is_block_device() || kind.is_char_device(), "D"),
        (kind.is_fifo(), "p"),
        (kind.is_socket(), "S"),
        (bits & 0o4000 != 0, "u"),
        (bits & 0o2000 != 0, "g"),
        (kind.is_char_device(), "c"),
        (bits & 0o1000 != 0, "t"),
    ];
    text.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, letter)| letter));
    if text.is_empty() {
        text.push('-');
    }
    for (index, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if bits & (0o400 >> index) != 0 { letter } else { '-' });
    }
    text
}
