//! Secrets as files, in memory only. Reads the API; [`super::content`] writes the files.

use api::names::SpecName;
use api::pod::Content;
use api::{ApiSource, Secret, VolumeSource};
use async_trait::async_trait;
use plugin_api::{OperationContext, SetUp};

use super::atomic_writer::Payload;
use super::content::{ContentError, Source, files_of, unless_missing};

#[derive(Debug, Default)]
pub(super) struct SecretSource;

/// The files of a Secret.
pub(super) async fn files(
    api: &dyn ApiSource,
    namespace: &str,
    content: &Content,
    default_mode: u32,
) -> Result<Payload, ContentError> {
    let answer = api::get::<Secret>(api, namespace, &content.name).await;
    let secret = unless_missing(answer, content.optional)?.unwrap_or_default();
    let find = |key: &str| secret.data.get(key).map(|value| value.reveal().clone());
    files_of("secret", content, find, secret.data.keys(), default_mode)
}

#[async_trait]
impl Source for SecretSource {
    const NAME: &'static str = "kubernetes.io/secret";
    const IN_MEMORY: bool = true;

    fn takes(source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Secret(_))
    }

    fn object(source: &VolumeSource) -> Option<&str> {
        match source {
            VolumeSource::Secret(content) => Some(&content.name),
            _ => None,
        }
    }

    async fn payload(
        cx: &OperationContext,
        source: &VolumeSource,
        request: &SetUp,
    ) -> Result<Payload, ContentError> {
        let VolumeSource::Secret(content) = source else {
            return Err(ContentError::WrongSource(request.spec.name()));
        };
        files(&*cx.api, &request.pod.meta.namespace, content, content.default_mode).await
    }

    fn found(inner: &SpecName) -> VolumeSource {
        VolumeSource::Secret(Content { name: inner.to_string(), ..Content::default() })
    }
}
