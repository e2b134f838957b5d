//! The sources of a pod's volumes without a driver. Pure.

use api::environment::{Holder, HolderKind, Origin};
use api::pod::{Content, DownwardItem, KeyFile, Projection};
use api::storage::FlexVolume;
use api::{Bytes, VolumeSource};

/// An empty directory on the node's disk.
pub fn empty_dir() -> VolumeSource {
    VolumeSource::EmptyDir { medium: String::new(), size_limit: None }
}

/// An empty directory in memory, limited in bytes.
pub fn memory(limit: u64) -> VolumeSource {
    VolumeSource::EmptyDir { medium: "Memory".to_owned(), size_limit: Some(Bytes(limit)) }
}

/// A path of the node, and what must be there.
pub fn host_path(path: &str, kind: &str) -> VolumeSource {
    VolumeSource::HostPath { path: path.to_owned(), kind: kind.to_owned() }
}

/// A volume of a FlexVolume driver, with options of its own.
pub fn flex_volume(driver: &str, read_only: bool, options: &[(&str, &str)]) -> VolumeSource {
    let option = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let (driver, options) = (driver.to_owned(), options.iter().map(option).collect());
    VolumeSource::FlexVolume(Box::new(FlexVolume { driver, read_only, options, ..FlexVolume::default() }))
}

/// A claim that is made for the pod.
pub fn ephemeral() -> VolumeSource {
    VolumeSource::Ephemeral { template: Box::default() }
}

/// All of a config map.
pub fn config_map(name: &str) -> VolumeSource {
    VolumeSource::ConfigMap(all_of(name))
}

/// All of a secret.
pub fn secret(name: &str) -> VolumeSource {
    VolumeSource::Secret(all_of(name))
}

/// Fields of the pod, each as a file.
pub fn downward(files: &[(&str, &str)]) -> VolumeSource {
    VolumeSource::DownwardApi { items: fields(files), default_mode: 0o644 }
}

/// Several sources in one directory.
pub fn projected(sources: Vec<Projection>) -> VolumeSource {
    VolumeSource::Projected { sources, default_mode: 0o644 }
}

/// All keys of an object, in files that every user may read.
pub fn all_of(name: &str) -> Content {
    Content { name: name.to_owned(), default_mode: 0o644, ..Content::default() }
}

/// Some keys of an object: the key, its file, the file's mode.
pub fn some_of(name: &str, keys: &[(&str, &str, Option<u32>)]) -> Content {
    let items = keys.iter().map(|(key, path, mode)| KeyFile {
        key: (*key).to_owned(),
        path: (*path).to_owned(),
        mode: *mode,
    });
    Content { items: items.collect(), ..all_of(name) }
}

/// A token of the pod's service account, in this file.
pub fn token(path: &str) -> Projection {
    Projection::ServiceAccountToken { audience: String::new(), expiration: 3600, path: path.to_owned() }
}

/// Fields of the pod as files.
pub fn fields(files: &[(&str, &str)]) -> Vec<DownwardItem> {
    let item = |(path, field): &(&str, &str)| DownwardItem {
        path: (*path).to_owned(),
        field: (*field).to_owned(),
        ..DownwardItem::default()
    };
    files.iter().map(item).collect()
}

/// The value of a variable: a field of the pod.
pub fn from_field(path: &str) -> Origin {
    Origin::Field(path.to_owned())
}

/// The value of a variable: a limit or a request of its container.
pub fn from_amount(resource: &str, divisor: &str) -> Origin {
    let (resource, divisor) = (resource.to_owned(), divisor.to_owned());
    Origin::Amount { container: String::new(), resource, divisor }
}

/// The value of a variable: a key of a config map or a secret.
pub fn from_key(kind: HolderKind, name: &str, key: &str) -> Origin {
    Origin::Key(Holder { kind, name: name.to_owned(), optional: false }, key.to_owned())
}
