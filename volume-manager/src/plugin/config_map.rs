//! ConfigMaps as files, on disk. Reads the API; [`super::content`] writes the files.

use api::names::SpecName;
use api::pod::Content;
use api::{ApiSource, ConfigMap, VolumeSource};
use async_trait::async_trait;
use plugin_api::{OperationContext, SetUp};

use super::atomic_writer::Payload;
use super::content::{ContentError, Source, files_of, unless_missing};

#[derive(Debug, Default)]
pub(super) struct ConfigMapSource;

/// The files of a ConfigMap.
pub(super) async fn files(
    api: &dyn ApiSource,
    namespace: &str,
    content: &Content,
    default_mode: u32,
) -> Result<Payload, ContentError> {
    let answer = api::get::<ConfigMap>(api, namespace, &content.name).await;
    let map = unless_missing(answer, content.optional)?.unwrap_or_default();
    let find = |key: &str| {
        let text = map.data.get(key).map(|text| text.clone().into_bytes());
        text.or_else(|| map.binary.get(key).cloned())
    };
    files_of("config", content, find, map.data.keys().chain(map.binary.keys()), default_mode)
}

#[async_trait]
impl Source for ConfigMapSource {
    const NAME: &'static str = "kubernetes.io/configmap";
    const IN_MEMORY: bool = false;

    fn takes(source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::ConfigMap(_))
    }

    fn object(source: &VolumeSource) -> Option<&str> {
        match source {
            VolumeSource::ConfigMap(content) => Some(&content.name),
            _ => None,
        }
    }

    async fn payload(
        cx: &OperationContext,
        source: &VolumeSource,
        request: &SetUp,
    ) -> Result<Payload, ContentError> {
        let VolumeSource::ConfigMap(content) = source else {
            return Err(ContentError::WrongSource(request.spec.name()));
        };
        files(&*cx.api, &request.pod.meta.namespace, content, content.default_mode).await
    }

    fn found(_inner: &SpecName) -> VolumeSource {
        VolumeSource::ConfigMap(Content::default())
    }
}
