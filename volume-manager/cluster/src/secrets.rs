//! The secrets that a call carries, read from the object that a volume, a class or annotations name.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::Namespaced;
use api::{ApiSource, Meta, Secret};

use crate::ReconcileError;

/// The secret's values as a call carries them; none where no secret is named.
pub(crate) async fn read(
    api: &dyn ApiSource,
    reference: Option<&Namespaced>,
) -> Result<BTreeMap<String, String>, ReconcileError> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    let secret: Arc<Secret> = api::get(api, &reference.namespace, &reference.name).await?;
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Ok(secret.data.iter().map(|(key, value)| (key.clone(), text(value.reveal()))).collect())
}

/// The keys of two annotations that name a secret.
#[derive(Debug)]
pub(crate) struct Annotations {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
}

impl Annotations {
    /// The secret that an object names.
    pub(crate) fn read(&self, meta: &Meta) -> Option<Namespaced> {
        let annotation = |key: &str| meta.annotations.get(key).cloned();
        let (namespace, name) = annotation(self.namespace).zip(annotation(self.name))?;
        Some(Namespaced::new(namespace, name))
    }

    /// The annotations for a secret.
    pub(crate) fn of(&self, secret: Option<Namespaced>) -> BTreeMap<String, String> {
        let named = |secret: Namespaced| {
            [(self.name.to_owned(), secret.name), (self.namespace.to_owned(), secret.namespace)]
        };
        secret.into_iter().flat_map(named).collect()
    }
}
