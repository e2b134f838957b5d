//! Symbols: names that are equal between runs, for paths, uids and handles that differ.
//!
//! A story has `<publish:data/web>` for the kernel's `/var/lib/kubelet/pods/…/mount`; a trace that is compared
//! with a recording has `$VOLID_v1` for a handle. Touches nothing.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use crate::Layout;

/// The symbols of a case. Clones share them.
#[derive(Debug, Clone)]
pub struct Symbols {
    layout: Layout,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    pods: BTreeMap<String, String>,
    volumes: BTreeMap<String, Volume>,
    devices: BTreeMap<String, String>,
    attachments: BTreeMap<String, String>,
    nodes: BTreeMap<PathBuf, String>,
    /// Replacements of [`Symbols::golden`], the longest first. `None` after a new name.
    golden: Option<Arc<[(String, String)]>>,
}

#[derive(Debug, Clone)]
struct Volume {
    inner: String,
    handle: String,
    hash: String,
}

/// The meaning of a path below the node's root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Target path of a volume in a pod.
    Publish { volume: String, pod: String },
    /// Staging path of a volume.
    Stage { volume: String },
    /// The global map directory of a block volume, or a pod's file in it.
    Map {
        volume: String,
        /// `None` for the directory.
        pod: Option<String>,
    },
    /// A sub-path of a volume, bound for a container.
    SubPath {
        volume: String,
        pod: String,
        /// Container and index of its mount: `main/0`.
        at: String,
    },
    /// The global mount of a local device.
    Global { volume: String },
    /// A volume in a pod's own directory: the link of a block volume, or a local volume.
    InPod { volume: String, pod: String },
}

impl Place {
    pub fn volume(&self) -> &str {
        match self {
            Self::Publish { volume, .. }
            | Self::Stage { volume }
            | Self::Map { volume, .. }
            | Self::SubPath { volume, .. }
            | Self::Global { volume }
            | Self::InPod { volume, .. } => volume,
        }
    }

    pub fn pod(&self) -> Option<&str> {
        match self {
            Self::Publish { pod, .. } | Self::InPod { pod, .. } | Self::SubPath { pod, .. } => Some(pod),
            Self::Map { pod, .. } => pod.as_deref(),
            Self::Stage { .. } | Self::Global { .. } => None,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Publish { volume, pod } => write!(f, "<publish:{volume}/{pod}>"),
            Self::Stage { volume } => write!(f, "<stage:{volume}>"),
            Self::Map { volume, pod: Some(pod) } => write!(f, "<map:{volume}/{pod}>"),
            Self::Map { volume, pod: None } => write!(f, "<map:{volume}>"),
            Self::SubPath { volume, pod, at } => write!(f, "<sub-path:{volume}/{pod}/{at}>"),
            Self::Global { volume } => write!(f, "<global:{volume}>"),
            Self::InPod { volume, pod } => write!(f, "<{pod}>/{volume}"),
        }
    }
}

impl Symbols {
    /// A table without names.
    pub fn new(layout: Layout) -> Self {
        Self { layout, table: Arc::default() }
    }

    /// The symbols for the paths of another node.
    #[must_use]
    pub fn on(&self, layout: Layout) -> Self {
        Self { layout, table: Arc::clone(&self.table) }
    }

    /// Whether a path is in a directory in which volumes are mounted by contract between node and driver.
    pub fn is_contract(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(self.layout.root()) else { return false };
        let mut parts = below.iter().map(OsStr::to_string_lossy);
        match parts.next().as_deref() {
            Some("pods") => true,
            // `kubernetes.io/csi`, `kubernetes.io~local-volume`.
            Some("plugins") => parts.next().is_some_and(|plugin| plugin.starts_with("kubernetes.io")),
            _ => false,
        }
    }

    pub fn root(&self) -> &Path {
        self.layout.root()
    }

    pub fn name_pod(&self, uid: &str, name: &str) {
        self.table().pods.insert(uid.to_owned(), name.to_owned());
    }

    /// Names a volume. `inner` is the name of its directories (that of the PersistentVolume, or of the pod's volume
    /// for an inline one), `handle` the driver's id.
    pub fn name_volume(&self, name: &str, inner: &str, handle: &str) {
        let volume = Volume { inner: inner.to_owned(), handle: handle.to_owned(), hash: hash(handle) };
        let mut table = self.table();
        table.volumes.insert(name.to_owned(), volume);
        table.golden = None;
    }

    /// Names an inline volume. The node makes its handle from the pod's uid and the name.
    pub fn name_inline(&self, name: &str, pod_uid: &str) {
        self.name_volume(name, name, &format!("csi-{}", hash(&format!("{pod_uid}{name}"))));
    }

    /// Names the device (`major:minor`) through which a volume is reached at the moment.
    pub fn name_device(&self, volume: &str, device: &str) {
        self.table().devices.insert(device.to_owned(), volume.to_owned());
    }

    /// Names a disk of the machine (`major:minor`, node at `path`) that a volume is made of.
    pub fn name_disk(&self, volume: &str, device: &str, path: &Path) {
        self.name_device(volume, device);
        self.table().nodes.insert(path.to_owned(), volume.to_owned());
    }

    /// Names a VolumeAttachment after its volume.
    pub fn name_attachment(&self, volume: &str, attachment: &str) {
        let mut table = self.table();
        table.attachments.insert(attachment.to_owned(), volume.to_owned());
        table.golden = None;
    }

    /// Names the VolumeAttachment that a volume has or would have on a node.
    pub fn expect_attachment(&self, volume: &str, driver: &str, node: &str) {
        if let Some(handle) = self.handle(volume) {
            let attachment = format!("csi-{}", hash(&format!("{handle}{driver}{node}")));
            self.name_attachment(volume, &attachment);
        }
    }

    /// The name of a pod, or its uid if it has none.
    pub fn pod(&self, uid: &str) -> String {
        self.table().pods.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }

    /// The name of the volume with this handle, or the handle if it has none.
    pub fn volume(&self, handle: &str) -> String {
        self.table().by_handle(handle).unwrap_or_else(|| handle.to_owned())
    }

    pub fn handle(&self, volume: &str) -> Option<String> {
        self.table().volumes.get(volume).map(|known| known.handle.clone())
    }

    /// `<device:data>` for a named device.
    pub fn device(&self, device: &str) -> Option<String> {
        self.table().devices.get(device).map(|volume| format!("<device:{volume}>"))
    }

    /// Whether a device of the volume has been named.
    pub fn has_device(&self, volume: &str) -> bool {
        self.table().devices.values().any(|known| known == volume)
    }

    /// The meaning of a path, if a story has a symbol for it.
    pub fn place(&self, path: &Path) -> Option<Place> {
        let below = path.strip_prefix(self.layout.root()).ok()?;
        let parts: Vec<&str> = below.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
        let table = self.table();
        let pod = |uid: &str| table.pods.get(uid).cloned().unwrap_or_else(|| uid.to_owned());
        let inner = |name: &str| table.by_inner(name);
        match parts.as_slice() {
            ["pods", uid, "volumes", "kubernetes.io~csi", name, "mount"] => {
                Some(Place::Publish { volume: inner(name), pod: pod(uid) })
            }
            ["pods", uid, "volumes" | "volumeDevices", _, name] => {
                Some(Place::InPod { volume: inner(name), pod: pod(uid) })
            }
            ["pods", uid, "volume-subpaths", name, container, index] => Some(Place::SubPath {
                volume: inner(name),
                pod: pod(uid),
                at: format!("{container}/{index}"),
            }),
            ["plugins", "kubernetes.io", "local-volume", "mounts", name] => {
                Some(Place::Global { volume: inner(name) })
            }
            ["plugins", "kubernetes.io~local-volume", "volumeDevices", name] => {
                Some(Place::Map { volume: inner(name), pod: None })
            }
            ["plugins", "kubernetes.io~local-volume", "volumeDevices", name, uid] => {
                Some(Place::Map { volume: inner(name), pod: Some(pod(uid)) })
            }
            ["plugins", "kubernetes.io", "csi", "volumeDevices", rest @ ..] => match rest {
                ["staging", name] => Some(Place::Stage { volume: inner(name) }),
                ["publish", name, uid] => Some(Place::Publish { volume: inner(name), pod: pod(uid) }),
                [name, "dev"] => Some(Place::Map { volume: inner(name), pod: None }),
                [name, "dev", uid] => Some(Place::Map { volume: inner(name), pod: Some(pod(uid)) }),
                _ => None,
            },
            ["plugins", "kubernetes.io", "csi", _, hash, "globalmount"] => {
                Some(Place::Stage { volume: table.by_hash(hash).unwrap_or_else(|| (*hash).to_owned()) })
            }
            _ => None,
        }
    }

    /// The symbol of a path: its [`Place`], else the path with known parts replaced.
    pub fn path(&self, path: &Path) -> String {
        self.name(path).unwrap_or_else(|| self.text(&path.to_string_lossy()))
    }

    /// The name of a path, or of the nearest directory above it that has one.
    fn name(&self, path: &Path) -> Option<String> {
        if let Some(volume) = self.table().nodes.get(path) {
            return Some(format!("<device:{volume}>"));
        }
        let machine = self.layout.machine();
        path.ancestors().find_map(|above| {
            let name = match above == machine {
                true => "<machine>".to_owned(),
                false => self.place(above)?.to_string(),
            };
            let below = path.strip_prefix(above).ok()?;
            Some(if below.as_os_str().is_empty() { name } else { format!("{name}/{}", below.display()) })
        })
    }

    /// A text with symbols for its paths, uids and handles.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for piece in text.split_inclusive(is_delimiter) {
            let (word, delimiter) = match piece.char_indices().next_back() {
                Some((at, last)) if is_delimiter(last) => piece.split_at(at),
                _ => (piece, ""),
            };
            let path = word.trim_end_matches(':');
            match self.name(Path::new(path)) {
                Some(name) => out.push_str(&(name + &word[path.len()..])),
                None => out.push_str(&self.words(word)),
            }
            out.push_str(delimiter);
        }
        out
    }

    /// A text with the symbols of the recordings: `$ROOT`, `$VOLID_x`, `$SHA256_VOLID_x`, `$VA_x`.
    pub fn golden(&self, text: &str) -> String {
        // A trace has many texts, so the replacements are sorted once for all of them.
        let pairs = Arc::clone(self.table().golden(&self.layout));
        replace(text, &pairs)
    }

    /// The real path behind a symbol of a story.
    pub fn real(&self, symbol: &str) -> Option<PathBuf> {
        let table = self.table();
        let known = |name: &str| table.volumes.get(name).cloned();
        let uid = |name: &str| table.pods.iter().find(|(_, pod)| *pod == name).map(|(uid, _)| uid.clone());
        let root = self.layout.root();
        let devices = root.join("plugins/kubernetes.io/csi/volumeDevices");
        let (kind, rest) = symbol.strip_prefix('<')?.strip_suffix('>')?.split_once(':')?;
        let (volume, pod) = rest.split_once('/').map_or((rest, None), |(volume, pod)| (volume, Some(pod)));
        let volume = known(volume)?;
        match (kind, pod) {
            ("publish", Some(pod)) => {
                let csi = root.join("pods").join(uid(pod)?).join("volumes/kubernetes.io~csi");
                Some(csi.join(volume.inner).join("mount"))
            }
            ("map", Some(pod)) => Some(devices.join(volume.inner).join("dev").join(uid(pod)?)),
            ("map", None) => Some(devices.join(volume.inner).join("dev")),
            _ => None,
        }
    }

    /// Target path of a block volume in a pod.
    pub fn block_target(&self, volume: &str, pod: &str) -> Option<PathBuf> {
        let table = self.table();
        let uid = table.pods.iter().find(|(_, name)| *name == pod).map(|(uid, _)| uid)?;
        let devices = self.layout.root().join("plugins/kubernetes.io/csi/volumeDevices");
        Some(devices.join("publish").join(&table.volumes.get(volume)?.inner).join(uid))
    }

    /// Directory of a plugin's volume in a pod.
    pub fn in_pod(&self, plugin: &str, volume: &str, pod: &str) -> Option<PathBuf> {
        let table = self.table();
        let uid = table.pods.iter().find(|(_, name)| *name == pod).map(|(uid, _)| uid)?;
        let inner = &table.volumes.get(volume)?.inner;
        Some(
            self.layout
                .root()
                .join("pods")
                .join(uid)
                .join("volumes")
                .join(plugin.replace('/', "~"))
                .join(inner),
        )
    }

    /// Replaces whole handles, hashes and uids inside a word.
    fn words(&self, word: &str) -> String {
        let table = self.table();
        let mut pairs = Vec::new();
        for (name, volume) in &table.volumes {
            pairs.push((volume.hash.clone(), format!("<hash:{name}>")));
            // A short handle may be a part of any word, so it is replaced only as a whole word.
            if volume.handle.len() >= 8 || volume.handle == word {
                pairs.push((volume.handle.clone(), format!("<volume:{name}>")));
            }
        }
        for (uid, name) in &table.pods {
            pairs.push((uid.clone(), format!("<{name}>")));
        }
        replace(word, &longest_first(pairs))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A poisoned lock is ignored: every statement leaves the table valid.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn by_handle(&self, handle: &str) -> Option<String> {
        self.volumes.iter().find(|(_, volume)| volume.handle == handle).map(|(name, _)| name.clone())
    }

    fn by_inner(&self, inner: &str) -> String {
        let found = self.volumes.iter().find(|(_, volume)| volume.inner == inner);
        found.map_or_else(|| inner.to_owned(), |(name, _)| name.clone())
    }

    fn by_hash(&self, wanted: &str) -> Option<String> {
        self.volumes.iter().find(|(_, volume)| volume.hash == wanted).map(|(name, _)| name.clone())
    }

    fn golden(&mut self, layout: &Layout) -> &Arc<[(String, String)]> {
        let (volumes, attachments) = (&self.volumes, &self.attachments);
        self.golden.get_or_insert_with(|| {
            let mut pairs = Vec::new();
            for (name, volume) in volumes {
                pairs.push((volume.hash.clone(), format!("$SHA256_VOLID_{name}")));
                pairs.push((volume.handle.clone(), format!("$VOLID_{name}")));
            }
            for (attachment, volume) in attachments {
                pairs.push((attachment.clone(), format!("$VA_{volume}")));
            }
            let places = [
                (layout.driver_state(), "$ROOT/drv"),
                (layout.root().to_owned(), "$ROOT/kl"),
                (layout.state().to_owned(), "$ROOT"),
            ];
            let place =
                |(path, name): (PathBuf, &str)| (path.to_string_lossy().into_owned(), name.to_owned());
            pairs.extend(places.into_iter().map(place));
            longest_first(pairs).into()
        })
    }
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '=')
}

/// The node's hash of a handle, in the path of a staging directory.
fn hash(handle: &str) -> String {
    Sha256::digest(handle.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sorts replacements so that a shorter match does not split a longer one.
fn longest_first(mut pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    pairs.retain(|(from, _)| !from.is_empty());
    pairs.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
    pairs
}

fn replace(text: &str, pairs: &[(String, String)]) -> String {
    let replaced = |text: String, (from, to): &(String, String)| match text.contains(from.as_str()) {
        true => text.replace(from.as_str(), to),
        false => text,
    };
    pairs.iter().fold(text.to_owned(), replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols() -> Symbols {
        let symbols = Symbols::new(Layout::standard());
        symbols.name_pod("uid-1", "web");
        symbols.name_volume("data", "pv-data", "handle-0001");
        symbols
    }

    #[track_caller]
    fn check(path: &str, symbol: &str) {
        assert_eq!(symbols().path(Path::new(path)), symbol);
    }

    #[test]
    fn contract_paths_have_names() {
        check("/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-data/mount", "<publish:data/web>");
        check(
            "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv-data/uid-1",
            "<publish:data/web>",
        );
        check("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv-data/dev/uid-1", "<map:data/web>");
        check("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv-data/dev", "<map:data>");
        check("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pv-data", "<stage:data>");
        check("/var/lib/kubelet/pods/uid-1/volumeDevices/kubernetes.io~csi/pv-data", "<web>/data");
        check("/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/cache", "<web>/cache");
        check("/var/lib/kubelet/pods/uid-1/volume-subpaths/pv-data/main/2", "<sub-path:data/web/main/2>");
        check("/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv-data", "<global:data>");
        check(
            "/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/pv-data/uid-1",
            "<map:data/web>",
        );
    }

    #[test]
    fn staging_directory_is_named_by_the_hash_of_its_handle() {
        let path =
            format!("/var/lib/kubelet/plugins/kubernetes.io/csi/d/{}/globalmount", hash("handle-0001"));
        check(&path, "<stage:data>");
    }

    #[test]
    fn paths_and_handles_in_a_message_become_symbols() {
        let text = "target \"/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-data/mount\" of handle-0001 is busy";
        assert_eq!(symbols().text(text), "target \"<publish:data/web>\" of <volume:data> is busy");
        let below = "at /var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-data/mount/a: no";
        assert_eq!(symbols().text(below), "at <publish:data/web>/a: no");
    }

    #[test]
    fn recordings_have_their_own_symbols() {
        let path =
            format!("/var/lib/kubelet/plugins/kubernetes.io/csi/d/{}/globalmount", hash("handle-0001"));
        assert_eq!(
            symbols().golden(&path),
            "$ROOT/kl/plugins/kubernetes.io/csi/d/$SHA256_VOLID_data/globalmount"
        );
        assert_eq!(symbols().golden("handle-0001"), "$VOLID_data");
    }

    #[test]
    fn symbol_is_resolved_to_its_path() {
        let path = "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-data/mount";
        assert_eq!(symbols().real("<publish:data/web>"), Some(PathBuf::from(path)));
    }
}
