//! Objects by key, where one that does not exist is an answer, and the finalizers that keep them.

use std::sync::Arc;

use api::{ApiSource, Key, Meta, Patch, PatchBody, Resource};

use crate::Trouble;

/// The object as it is now; `None` where there is none.
pub(crate) async fn find<R: Resource>(api: &dyn ApiSource, key: &Key) -> Result<Option<Arc<R>>, Trouble> {
    match api::get::<R>(api, &key.namespace, &key.name).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Keeps an object until the finalizer is taken away. Says whether it was written.
pub(crate) async fn hold(
    api: &dyn ApiSource,
    key: &Key,
    meta: &Meta,
    finalizer: &str,
) -> Result<bool, Trouble> {
    if meta.has_finalizer(finalizer) {
        return Ok(false);
    }
    let all = meta.finalizers.iter().cloned().chain([finalizer.to_owned()]).collect();
    api.patch(Patch::of_version(key.clone(), meta, PatchBody::Finalizers(all))).await?;
    Ok(true)
}

/// Takes finalizers away. An object that is gone has none.
pub(crate) async fn release(
    api: &dyn ApiSource,
    key: &Key,
    meta: &Meta,
    finalizers: &[&str],
) -> Result<(), Trouble> {
    if !finalizers.iter().any(|finalizer| meta.has_finalizer(finalizer)) {
        return Ok(());
    }
    let others = meta.finalizers.iter().filter(|held| !finalizers.contains(&held.as_str())).cloned();
    let body = PatchBody::Finalizers(others.collect());
    match api.patch(Patch::of_version(key.clone(), meta, body)).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
