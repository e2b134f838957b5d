//! The secrets that a call carries, read from the object that a volume or a class names.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::Namespaced;
use api::{ApiSource, Secret};

use crate::Trouble;

/// The secret's values as a call carries them; none where no secret is named.
pub(crate) async fn read(
    api: &dyn ApiSource,
    reference: Option<&Namespaced>,
) -> Result<BTreeMap<String, String>, Trouble> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    let secret: Arc<Secret> = api::get(api, &reference.namespace, &reference.name).await?;
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Ok(secret.data.iter().map(|(key, value)| (key.clone(), text(value.reveal()))).collect())
}
