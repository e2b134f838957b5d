//! Archives of `docker save` before they were OCI image layouts: a `manifest.json` that names configuration and layers.

use oci_spec::image::ImageConfiguration;
use serde::Deserialize;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::files::{Contents, Files, Layer};

pub(crate) const MANIFEST: &str = "manifest.json";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

pub(crate) fn contents(files: &Files<'_>) -> Result<Contents, ImageError> {
    let mut saved: Vec<Saved> = files.document(MANIFEST, None)?;
    let saved = match (saved.pop(), saved.len()) {
        (Some(one), 0) => one,
        (Some(_), others) => return Err(files.several(others + 1)),
        (None, _) => return Err(files.unknown()),
    };
    // The configuration is named after its digest.
    let stem = saved.config.rsplit('/').next().unwrap_or_default();
    let expected = Digest::from_hex(stem.strip_suffix(".json").unwrap_or(stem));
    let config: ImageConfiguration = files.document(&saved.config, expected.as_ref())?;
    files.check_machine(&config)?;
    let diff_ids = config.rootfs().diff_ids();
    if diff_ids.len() != saved.layers.len() {
        let why = format!("it names {} layers, and `{MANIFEST}` {}", diff_ids.len(), saved.layers.len());
        return Err(files.not_understood(&saved.config, &why));
    }
    let layers = saved.layers.into_iter().zip(diff_ids).map(|(name, id)| {
        let digest = Digest::parse(id);
        let digest = digest.ok_or_else(|| files.not_understood(id, "only sha256 digests can be checked"))?;
        Ok(Layer { name, of_blob: None, of_content: Some(digest) })
    });
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    let id = files.digest(&saved.config)?;
    Ok(Contents { id: id.hex().to_owned(), layers, config: Some(config) })
}
