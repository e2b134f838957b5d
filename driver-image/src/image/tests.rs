//! Images made by hand, good ones and hostile ones.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use oci_spec::image::Arch;
use rustix::io::Errno;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{EntryType, Header};
use tempfile::TempDir;

use super::*;

mod layouts;
mod limits;

fn wanted() -> bool {
    false
}

/// An archive whose names and links are taken as they are.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn add(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        let fields = header.as_gnu_mut().unwrap();
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.add(EntryType::Regular, name, "", content.as_bytes())
    }

    fn directory(self, name: &str) -> Self {
        self.add(EntryType::Directory, name, "", b"")
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, target, b"")
    }

    fn hard_link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Link, name, target, b"")
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn sha256(data: &[u8]) -> String {
    Digest::of(data).unwrap().hex().to_owned()
}

/// An image in the making: its files by their names.
struct Made {
    files: BTreeMap<String, Vec<u8>>,
}

impl Made {
    fn blob(&mut self, data: Vec<u8>) -> String {
        let digest = sha256(&data);
        self.files.insert(format!("blobs/sha256/{digest}"), data);
        format!("sha256:{digest}")
    }

    fn json(&mut self, text: &str) -> (String, usize) {
        (self.blob(text.as_bytes().to_vec()), text.len())
    }

    /// An OCI image layout with these layers, packed or not, for a machine.
    fn layout(layers: &[Vec<u8>], architecture: &str) -> Self {
        let mut made = Self { files: BTreeMap::new() };
        let descriptors: Vec<String> = layers
            .iter()
            .map(|layer| {
                let digest = made.blob(layer.clone());
                let media = "application/vnd.oci.image.layer.v1.tar";
                format!(r#"{{"mediaType":"{media}","digest":"{digest}","size":{}}}"#, layer.len())
            })
            .collect();
        let (config, size) = made.json(&config(architecture, &[]));
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{config}","size":{size}}},"layers":[{}]}}"#,
            descriptors.join(",")
        );
        let (manifest, size) = made.json(&manifest);
        let media = "application/vnd.oci.image.manifest.v1+json";
        let platform = format!(r#"{{"architecture":"{architecture}","os":"linux"}}"#);
        let attestation = format!(
            r#"{{"mediaType":"{media}","digest":"sha256:{}","size":1,"platform":{{"architecture":"unknown","os":"unknown"}}}}"#,
            "0".repeat(64)
        );
        let index = format!(
            r#"{{"schemaVersion":2,"manifests":[{attestation},{{"mediaType":"{media}","digest":"{manifest}","size":{size},"platform":{platform}}}]}}"#
        );
        made.files.insert("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
        made.files.insert("index.json".into(), index.into_bytes());
        made
    }

    /// An archive of `docker save` as it was before it was an OCI image layout.
    fn saved(layers: &[Vec<u8>]) -> Self {
        let ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
        let config = config(&Arch::default().to_string(), &ids);
        let name = format!("{}.json", sha256(config.as_bytes()));
        let mut files = BTreeMap::from([(name.clone(), config.into_bytes())]);
        let names: Vec<String> = (0..layers.len()).map(|n| format!("{n}/layer.tar")).collect();
        files.extend(names.iter().cloned().zip(layers.iter().cloned()));
        let manifest = format!(r#"[{{"Config":"{name}","RepoTags":["driver:latest"],"Layers":{names:?}}}]"#);
        files.insert("manifest.json".into(), manifest.into_bytes());
        Self { files }
    }

    fn tar(&self) -> Vec<u8> {
        let add = |tar: Tar, (name, data): (&String, &Vec<u8>)| tar.add(EntryType::Regular, name, "", data);
        self.files.iter().fold(Tar::default(), add).end()
    }

    fn directory(&self, at: &Path) {
        for (name, data) in &self.files {
            fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
            fs::write(at.join(name), data).unwrap();
        }
    }
}

fn config(architecture: &str, diff_ids: &[String]) -> String {
    format!(
        r#"{{"architecture":"{architecture}","os":"linux","config":{{"Entrypoint":["/driver"],"Cmd":["--help"],"Env":["PATH=/bin","A=b=c"],"WorkingDir":"/work/dir"}},"rootfs":{{"type":"layers","diff_ids":{diff_ids:?}}}}}"#
    )
}

fn here() -> String {
    Arch::default().to_string()
}

/// Where an image was unpacked, with a file beside its root that no image may touch.
struct Unpacked {
    ground: TempDir,
    result: Result<Start, ImageError>,
}

impl Unpacked {
    fn of(image: impl FnOnce(&Path) -> PathBuf, limits: Limits) -> Self {
        let ground = tempfile::tempdir().unwrap();
        fs::write(ground.path().join("victim"), "untouched").unwrap();
        let root = ground.path().join("root");
        fs::create_dir(&root).unwrap();
        let file = image(ground.path());
        let result = Image::open(&file, limits, &wanted)
            .and_then(|image| image.unpack(&root, &wanted).map(|()| image.start()));
        let unpacked = Self { ground, result };
        assert_eq!(fs::read_to_string(unpacked.ground.path().join("victim")).unwrap(), "untouched");
        let mut beside: Vec<_> =
            fs::read_dir(unpacked.ground.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        beside.retain(|name| name != "image");
        beside.sort();
        assert_eq!(beside, ["root", "victim"], "something is beside the root");
        unpacked
    }

    fn bytes(data: &[u8]) -> Self {
        Self::of(
            |ground| {
                fs::write(ground.join("image"), data).unwrap();
                ground.join("image")
            },
            Limits::default(),
        )
    }

    fn root(&self) -> PathBuf {
        self.ground.path().join("root")
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }

    fn error(&self) -> String {
        self.result.as_ref().expect_err("it is refused").to_string()
    }
}

/// A lower layer, and one that changes it.
fn two_layers() -> [Vec<u8>; 2] {
    let lower = Tar::default()
        .file("./driver", "old")
        .file("etc/gone", "")
        .file("etc/stays", "lower")
        .directory("cache/")
        .file("cache/a/b", "lower")
        .file("dir/file", "becomes a file")
        .link("lib", "usr/lib")
        .file("usr/lib/x", "lower");
    let upper = Tar::default()
        .file("driver", "new")
        .file("etc/.wh.gone", "")
        .file("cache/a/new", "upper")
        .file("cache/.wh..wh..opq", "")
        .file("dir", "a file now")
        .file("lib/y", "through the link");
    [lower.end(), upper.end()]
}

fn check_two_layers(unpacked: &Unpacked) {
    let start = unpacked.result.as_ref().unwrap();
    assert_eq!((start.entrypoint.join(" "), start.arguments.join(" ")), ("/driver".into(), "--help".into()));
    assert_eq!(start.env.get("A").map(String::as_str), Some("b=c"));
    assert_eq!(start.directory.as_deref(), Some("/work/dir"));
    assert!(unpacked.root().join("work/dir").is_dir(), "a runtime makes the working directory");
    for (path, text) in [
        ("driver", Some("new")),
        ("etc/gone", None),
        ("etc/.wh.gone", None),
        ("etc/stays", Some("lower")),
        ("cache/a/b", None),
        ("cache/a/new", Some("upper")),
        ("cache/.wh..wh..opq", None),
        ("dir", Some("a file now")),
        ("usr/lib/x", Some("lower")),
        ("usr/lib/y", Some("through the link")),
    ] {
        assert_eq!(unpacked.text(path).as_deref(), text, "{path}");
    }
}

#[test]
fn layers_of_a_layout_lie_over_each_other_in_order() {
    let [lower, upper] = two_layers();
    let zstd = compress_to_vec(upper.as_slice(), CompressionLevel::Fastest);
    for layers in [[lower.clone(), upper.clone()], [gzip(&lower), gzip(&upper)], [gzip(&lower), zstd]] {
        let made = Made::layout(&layers, &here());
        check_two_layers(&Unpacked::bytes(&made.tar()));
        check_two_layers(&Unpacked::bytes(&gzip(&made.tar())));
        check_two_layers(&Unpacked::of(
            |ground| {
                made.directory(&ground.join("image"));
                ground.join("image")
            },
            Limits::default(),
        ));
    }
}

#[test]
fn archives_of_docker_save_are_read_in_both_forms() {
    let saved = Made::saved(&two_layers());
    check_two_layers(&Unpacked::bytes(&saved.tar()));
    // Newer ones are both.
    let mut both = Made::layout(&two_layers(), &here());
    both.files.insert("manifest.json".into(), b"[]".to_vec());
    check_two_layers(&Unpacked::bytes(&both.tar()));
    // A layer that is there twice is a link.
    let layer = Tar::default().file("driver", "x").end();
    let mut twice = Made::saved(&[layer.clone(), layer]);
    twice.files.remove("1/layer.tar");
    let tar = twice
        .files
        .iter()
        .fold(Tar::default(), |tar, (name, data)| tar.add(EntryType::Regular, name, "", data));
    let unpacked = Unpacked::bytes(&tar.link("1/layer.tar", "../0/layer.tar").end());
    assert_eq!(unpacked.text("driver").as_deref(), Some("x"), "{:?}", unpacked.result);
}

#[test]
fn tarball_of_a_root_is_an_image_that_says_nothing_of_its_start() {
    let tar = Tar::default().directory("./").file("./driver", "x").end();
    for data in [tar.clone(), gzip(&tar), compress_to_vec(tar.as_slice(), CompressionLevel::Fastest)] {
        let unpacked = Unpacked::bytes(&data);
        assert_eq!(unpacked.result.as_ref().unwrap(), &Start::default());
        assert_eq!(unpacked.text("driver").as_deref(), Some("x"));
    }
}

#[test]
fn entries_that_name_something_outside_are_refused() {
    let tar = Tar::default;
    for (what, hostile) in [
        ("a name", tar().file("../victim", "x")),
        ("a name in the middle", tar().file("a/../../victim", "x")),
        ("a directory", tar().directory("../victim/")),
        ("a hard link", tar().hard_link("x", "../victim")),
        ("a whiteout", tar().file(".wh...", "")),
        ("a whiteout below", tar().file("a/.wh...", "")),
        ("a whiteout of the directory itself", tar().file("a/.wh..", "")),
    ] {
        let error = Unpacked::bytes(&hostile.end()).error();
        assert!(error.contains("leaves its root"), "{what}: {error}");
    }
}

#[test]
fn links_lead_to_places_in_the_root_only() {
    // For each link that would lead out: whatever is done through it is done in the root.
    for target in ["..", "/", "../../../../../../..", "/proc/self/root", "sub/../.."] {
        let through = Tar::default()
            .directory("sub")
            .link("out", target)
            .file("out/written", "inside")
            .directory("out/made")
            .hard_link("name", "out/written")
            .file("out/.wh.victim", "")
            .file("out/sub/.wh..wh..opq", "");
        let unpacked = Unpacked::bytes(&through.end());
        assert!(unpacked.result.is_ok(), "{target}: {:?}", unpacked.result);
        assert_eq!(unpacked.text("name").as_deref(), Some("inside"), "{target}");
    }
    // A file in place of a link does not write through it.
    let over = Tar::default().link("driver", "../victim").file("driver", "new");
    assert_eq!(Unpacked::bytes(&over.end()).text("driver").as_deref(), Some("new"));
    // A hard link to a link is another name of the link, and its target is not followed.
    let name = Tar::default().link("link", "../victim").hard_link("name", "link");
    let unpacked = Unpacked::bytes(&name.end());
    assert!(unpacked.root().join("name").is_symlink());
    // An absolute name begins at the root.
    let absolute = Tar::default().file("/etc/driver", "x").hard_link("again", "/etc/driver");
    let unpacked = Unpacked::bytes(&absolute.end());
    assert_eq!(unpacked.text("etc/driver").as_deref(), Some("x"));
    let inode = |path: &str| fs::metadata(unpacked.root().join(path)).unwrap().ino();
    assert_eq!(inode("again"), inode("etc/driver"));
    let missing = Unpacked::bytes(&Tar::default().hard_link("passwd", "/etc/passwd").end());
    assert!(missing.error().contains("cannot unpack `passwd`"), "the machine's file is not meant");
}

#[test]
fn devices_are_left_out_and_modes_are_kept() {
    let mut tar = Tar::default().add(EntryType::Char, "dev/null", "", b"").file("driver", "x");
    tar = tar.add(EntryType::Block, "dev/sda", "", b"").add(EntryType::Fifo, "pipe", "", b"");
    let at = tar.0.len();
    tar = tar.file("su", "x");
    // The mode of the last file, with the checksum that belongs to it.
    let mut header = Header::from_byte_slice(&tar.0[at..at + 512]).clone();
    header.set_mode(0o4755);
    header.set_cksum();
    tar.0[at..at + 512].copy_from_slice(header.as_bytes());
    let unpacked = Unpacked::bytes(&tar.end());
    unpacked.result.as_ref().unwrap();
    assert!(!unpacked.root().join("dev").exists(), "an image has no device");
    let mode = |path: &str| fs::metadata(unpacked.root().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("driver"), mode("su")), (0o644, 0o4755));
    assert_eq!(fs::metadata(unpacked.root().join("driver")).unwrap().mtime(), 1_000_000_000);
}

#[test]
fn damaged_and_missing_parts_are_named() {
    let good = Made::layout(&two_layers(), &here());
    let blobs: Vec<String> = good.files.keys().filter(|name| name.starts_with("blobs/")).cloned().collect();
    assert_eq!(blobs.len(), 4, "two layers, configuration and manifest");
    for blob in &blobs {
        let mut damaged = Made { files: good.files.clone() };
        let data = damaged.files.get_mut(blob).unwrap();
        let last = data.len() - 1;
        data[last] ^= 1;
        let error = Unpacked::bytes(&damaged.tar()).error();
        assert!(error.contains("is damaged") && error.contains(blob.as_str()), "{error}");
        damaged.files.remove(blob);
        let error = Unpacked::bytes(&damaged.tar()).error();
        assert!(error.contains("is not complete") && error.contains(blob.as_str()), "{error}");
    }
    let mut saved = Made::saved(&two_layers());
    saved.files.get_mut("1/layer.tar").unwrap()[0] ^= 1;
    let error = Unpacked::bytes(&saved.tar()).error();
    assert!(error.contains("is damaged: `1/layer.tar`"), "{error}");
    let mut packed = gzip(&two_layers()[0]);
    packed.truncate(packed.len() / 2);
    let mut cut = Made::layout(&[gzip(&two_layers()[0])], &here());
    let layer = cut.files.values_mut().find(|data| data.starts_with(b"\x1f\x8b")).unwrap();
    *layer = packed;
    let error = Unpacked::bytes(&cut.tar()).error();
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn image_for_another_machine_is_refused() {
    let other = if here() == "arm64" { "amd64" } else { "arm64" };
    let error = Unpacked::bytes(&Made::layout(&two_layers(), other).tar()).error();
    assert!(error.contains(&format!("is for linux/{other}, and this machine is {}", here())), "{error}");
}

#[test]
fn files_that_are_no_image_are_refused() {
    let whole = Tar::default().file("driver", "x".repeat(4000).as_str()).end();
    for data in [&b"no image"[..], b"", &[0; 4096], b"\x1f\x8b\x08 damaged", &gzip(b"no archive")] {
        let error = Unpacked::bytes(data).error();
        assert!(error.contains("is no image that can be read"), "{error}");
    }
    let error = Unpacked::bytes(&whole[..1500]).error();
    assert!(error.contains("cannot unpack `driver`"), "{error}");
    let at = |name: &str| Unpacked::of(|ground| ground.join(name), Limits::default()).error();
    assert!(at("nowhere").contains("there is no image"));
    assert!(at("root").contains("has no `index.json`"));
    let mut two = Made::saved(&two_layers());
    let text = String::from_utf8(two.files["manifest.json"].clone()).unwrap();
    let one = text.trim_matches(['[', ']']);
    two.files.insert("manifest.json".into(), format!("[{one},{one}]").into_bytes());
    assert!(Unpacked::bytes(&two.tar()).error().contains("contains 2 images"));
}

#[test]
fn error_of_the_machine_keeps_its_cause() {
    let of = |errno: Errno| not_opened(Path::new("image"), errno.into());
    assert!(matches!(of(Errno::NOENT), ImageError::Missing { .. }));
    for full in [Errno::NOSPC, Errno::DQUOT] {
        assert!(matches!(of(full), ImageError::Full { .. }), "{full}");
    }
    for errno in [Errno::IO, Errno::NOMEM, Errno::ACCESS, Errno::INVAL, Errno::MFILE] {
        assert!(matches!(of(errno), ImageError::Read { .. }), "{errno}");
    }
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData, io::ErrorKind::Other] {
        assert!(matches!(not_opened(Path::new("image"), kind.into()), ImageError::Unknown { .. }), "{kind}");
    }
}

#[test]
fn images_of_the_same_content_have_the_same_id() {
    let directory = tempfile::tempdir().unwrap();
    let id = |data: Vec<u8>| {
        let file = directory.path().join("image");
        fs::write(&file, data).unwrap();
        Image::open(&file, Limits::default(), &wanted).unwrap().id().to_owned()
    };
    let [lower, upper] = two_layers();
    let layout = |layers: &[Vec<u8>]| Made::layout(layers, &here()).tar();
    assert_eq!(
        id(layout(&[lower.clone(), upper.clone()])),
        id(gzip(&layout(&[lower.clone(), upper.clone()])))
    );
    assert_ne!(id(layout(&[lower.clone(), upper])), id(layout(&[lower])));
}
