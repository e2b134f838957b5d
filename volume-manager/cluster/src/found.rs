//! Objects by key, where one that does not exist is an answer, the finalizers that keep them, and their annotations.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{ApiError, ApiSource, Key, Meta, Patch, PatchBody, Resource};

use crate::ReconcileError;

/// The object as it is now; `None` where there is none.
pub(crate) async fn find<R: Resource>(
    api: &dyn ApiSource,
    key: &Key,
) -> Result<Option<Arc<R>>, ReconcileError> {
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
) -> Result<bool, ReconcileError> {
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
) -> Result<(), ReconcileError> {
    if !finalizers.iter().any(|finalizer| meta.has_finalizer(finalizer)) {
        return Ok(());
    }
    let others = meta.finalizers.iter().filter(|held| !finalizers.contains(&held.as_str())).cloned();
    let body = PatchBody::Finalizers(others.collect());
    unless_gone(api.patch(Patch::of_version(key.clone(), meta, body)).await)
}

/// Makes an object, and answers it as the API server has it.
pub(crate) async fn create<R: Resource>(api: &dyn ApiSource, object: R) -> Result<Arc<R>, ReconcileError> {
    let made = api.create(object.clone().into_object()).await?;
    Ok(R::from_object(made).unwrap_or_else(|| Arc::new(object)))
}

/// Deletes an object, unless it is gone.
pub(crate) async fn delete(api: &dyn ApiSource, key: &Key) -> Result<(), ReconcileError> {
    unless_gone(api.delete(key).await)
}

/// Writes an annotation, or takes it away without a value.
pub(crate) async fn annotate(
    api: &dyn ApiSource,
    key: &Key,
    meta: &Meta,
    annotation: &str,
    value: Option<&str>,
) -> Result<(), ReconcileError> {
    // One that is not there may have been written since.
    if value.is_some() && meta.annotations.get(annotation).map(String::as_str) == value {
        return Ok(());
    }
    let annotations = BTreeMap::from([(annotation.to_owned(), value.map(str::to_owned))]);
    let body = PatchBody::Metadata { labels: BTreeMap::new(), annotations };
    api.patch(Patch::of(key.clone(), body)).await?;
    Ok(())
}

fn unless_gone<T>(result: Result<T, ApiError>) -> Result<(), ReconcileError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
