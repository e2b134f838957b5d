//! OCI image layouts: from the index to the manifest for this machine, its configuration and its layers.

use std::collections::BTreeSet;

use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};

use crate::budget::Budget;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::files::{Contents, Files, Layer};

pub(crate) const INDEX: &str = "index.json";

/// How deep an index may lie in others.
const DEPTH: usize = 4;

/// The most indices of an image. Each may have as many bytes as a document.
const INDICES: usize = 64;

/// The contents of the layout's image for this machine.
pub(crate) fn contents(files: &Files<'_>, budget: &Budget<'_>) -> Result<Contents, ImageError> {
    let index: ImageIndex = files.document(INDEX, None)?;
    let mut found = Found::default();
    collect(files, budget, &index, DEPTH, &mut found)?;
    let manifest = match found.preferred().as_slice() {
        [] if found.platforms.is_empty() => return Err(files.unknown()),
        [] => {
            let platforms: Vec<&str> = found.platforms.iter().map(String::as_str).collect();
            return Err(files.other_machine(platforms.join(", ")));
        }
        [one] => *one,
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
    fitting: Vec<Fitting>,
    /// The platforms of the others.
    platforms: BTreeSet<String>,
    /// The indices in others that were read.
    indices: BTreeSet<String>,
}

struct Fitting {
    digest: Digest,
    /// Whether it is for some processors of this architecture only.
    has_variant: bool,
}

impl Found {
    /// Those without a variant, which run on each machine of the architecture; if there is none, all.
    fn preferred(&self) -> Vec<&Digest> {
        let is_general = self.fitting.iter().any(|fitting| !fitting.has_variant);
        let preferred = self.fitting.iter().filter(|fitting| !(is_general && fitting.has_variant));
        preferred.map(|fitting| &fitting.digest).collect()
    }
}

fn collect(
    files: &Files<'_>,
    budget: &Budget<'_>,
    index: &ImageIndex,
    depth: usize,
    found: &mut Found,
) -> Result<(), ImageError> {
    if let Some(ended) = budget.ended(files.path) {
        return Err(ended);
    }
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
            if !found.fitting.iter().any(|fitting| fitting.digest == digest) {
                let has_variant =
                    entry.platform().as_ref().is_some_and(|platform| platform.variant().is_some());
                found.fitting.push(Fitting { digest, has_variant });
            }
        } else if depth > 0 && found.indices.insert(digest.hex().to_owned()) {
            if found.indices.len() > INDICES {
                return Err(files.not_understood(INDEX, &format!("it has more than {INDICES} indices in it")));
            }
            let inner = files.document(&digest.blob(), Some(&digest))?;
            collect(files, budget, &inner, depth - 1, found)?;
        }
    }
    Ok(())
}

fn digest(files: &Files<'_>, descriptor: &Descriptor) -> Result<Digest, ImageError> {
    let text = descriptor.digest().to_string();
    Digest::parse(&text).ok_or_else(|| files.not_understood(&text, "only sha256 digests can be checked"))
}
