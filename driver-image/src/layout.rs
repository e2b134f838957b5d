//! OCI image layouts: from the index to the manifest for this machine, its configuration and its layers.

use std::collections::BTreeSet;

use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};

use crate::digest::Digest;
use crate::error::ImageError;
use crate::files::{Contents, Files, Layer};

pub(crate) const INDEX: &str = "index.json";

/// How deep an index may lie in others.
const DEPTH: usize = 4;

/// The contents of the layout's image for this machine.
pub(crate) fn contents(files: &Files<'_>) -> Result<Contents, ImageError> {
    let index: ImageIndex = files.document(INDEX, None)?;
    let mut found = Found::default();
    collect(files, &index, DEPTH, &mut found)?;
    let manifest = match found.fitting.as_slice() {
        [] if found.platforms.is_empty() => return Err(files.unknown()),
        [] => return Err(files.other_machine(found.platforms.into_iter().collect::<Vec<_>>().join(", "))),
        [one] => one,
        several => return Err(files.several(several.len())),
    };
    let document: ImageManifest = files.document(&manifest.blob(), Some(manifest))?;
    let config = digest(files, document.config())?;
    let config: ImageConfiguration = files.document(&config.blob(), Some(&config))?;
    files.check_machine(&config)?;
    let layers = document.layers().iter().map(|layer| {
        let digest = digest(files, layer)?;
        Ok(Layer { name: digest.blob(), of_blob: Some(digest), of_content: None })
    });
    Ok(Contents {
        id: manifest.hex().to_owned(),
        layers: layers.collect::<Result<_, _>>()?,
        config: Some(config),
    })
}

/// The manifests of an index.
#[derive(Default)]
struct Found {
    /// Those for this machine, or for none that is named.
    fitting: Vec<Digest>,
    /// The platforms of the others.
    platforms: BTreeSet<String>,
}

fn collect(files: &Files<'_>, index: &ImageIndex, depth: usize, found: &mut Found) -> Result<(), ImageError> {
    for entry in index.manifests() {
        if let Some(platform) = entry
            .platform()
            .as_ref()
            .filter(|platform| *platform.os() != Os::Linux || *platform.architecture() != Arch::default())
        {
            // Attestations are for a platform of this name.
            if platform.architecture().to_string() != "unknown" {
                found.platforms.insert(format!("{}/{}", platform.os(), platform.architecture()));
            }
            continue;
        }
        let digest = digest(files, entry)?;
        let is_index = *entry.media_type() == MediaType::ImageIndex
            || entry.media_type().to_string().contains("manifest.list");
        if !is_index {
            if !found.fitting.contains(&digest) {
                found.fitting.push(digest);
            }
        } else if depth > 0 {
            let inner = files.document(&digest.blob(), Some(&digest))?;
            collect(files, &inner, depth - 1, found)?;
        }
    }
    Ok(())
}

fn digest(files: &Files<'_>, descriptor: &Descriptor) -> Result<Digest, ImageError> {
    let text = descriptor.digest().to_string();
    Digest::parse(&text).ok_or_else(|| files.not_understood(&text, "only sha256 digests can be checked"))
}
