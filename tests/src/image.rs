//! Images of drivers: an OCI image layout that a test writes itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::built;

/// The configuration of an image that starts a script with the shell.
const CONFIG: &str = r#"{"architecture":"ARCH","os":"linux","rootfs":{"type":"layers","diff_ids":[]},"config":{
    "Entrypoint":["/bin/sh","/driver.sh"],"Cmd":["--help"],"WorkingDir":"/work",
    "Env":["FROM_IMAGE=yes","TMPDIR=/work","PATH=/usr/bin:/usr/sbin:/bin"]}}"#;

/// The driver of the images: it looks for what the image says, and becomes fake-csi with its arguments.
fn script() -> String {
    format!(
        "test \"$FROM_IMAGE\" = yes || exit 3\ntest \"$PWD\" = /work || exit 4\ntest ! -e /home || exit 5\n\
         touch /written || exit 6\ntest \"$TMPDIR\" = /work || exit 7\nexec {} __fake-csi \"$@\"\n",
        built().display()
    )
}

/// The name of this machine's architecture in images.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A layer with the files of a directory.
pub fn layer(root: &Path) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    layer.follow_symlinks(false);
    layer.append_dir_all(".", root).expect("its files can be read");
    layer.into_inner().expect("the end of the archive")
}

/// Writes an OCI image layout with one layer, and returns the name of that in it.
pub fn layout(at: &Path, layer: &[u8], architecture: &str) -> PathBuf {
    let blobs = at.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("a directory");
    let blob = |data: &[u8], media: &str| {
        let digest: String = Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(blobs.join(&digest), data).expect("a blob");
        let media = format!("application/vnd.oci.image.{media}");
        let size = data.len();
        (
            blobs.join(&digest),
            format!(r#"{{"mediaType":"{media}","digest":"sha256:{digest}","size":{size}}}"#),
        )
    };
    let (file, layer) = blob(layer, "layer.v1.tar");
    let (_, config) = blob(CONFIG.replace("ARCH", architecture).as_bytes(), "config.v1+json");
    let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layer}]}}"#);
    let (_, manifest) = blob(manifest.as_bytes(), "manifest.v1+json");
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{manifest}]}}"#);
    fs::write(at.join("index.json"), index).expect("the index");
    fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("the version");
    file
}

/// Puts an image with fake-csi and what it needs into `image` of a directory.
pub fn image_with_fake_csi(directory: &Path) {
    let programs =
        [built(), Path::new("/bin/sh"), Path::new("/usr/bin/touch"), Path::new("/usr/sbin/mkfs.ext4")];
    let root = root_with(directory, &programs);
    fs::write(root.join("driver.sh"), script()).expect("a script");
    layout(&directory.join("image"), &layer(&root), architecture());
    fs::remove_dir_all(root).expect("it is in the image");
}

/// A root directory with these programs and the libraries they need, each where it is on this machine.
pub fn root_with(directory: &Path, programs: &[&Path]) -> PathBuf {
    let root = directory.join("root:fs");
    let place = |file: &Path| {
        let target = root.join(file.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(target.parent().expect("below the root")).expect("a directory");
        fs::copy(file, target).expect("a file can be copied");
    };
    for program in programs {
        place(program);
        let told = Command::new("ldd").arg(program).output().expect("ldd can be started");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        told.split_whitespace()
            .filter(|word| word.starts_with('/'))
            .for_each(|library| place(Path::new(library)));
    }
    fs::create_dir_all(root.join("tmp")).expect("a directory");
    root
}
