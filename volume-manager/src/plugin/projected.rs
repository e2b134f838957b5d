//! Several sources in one directory, in memory only: ConfigMaps, Secrets, fields of the pod, tokens of its
//! service account. Reads the API; [`super::content`] writes the files.

use api::names::SpecName;
use api::pod::Projection;
use api::{Kind, Reference, Sensitive, TokenRequest, VolumeSource};
use async_trait::async_trait;
use plugin_api::{OperationContext, SetUp};

use super::atomic_writer::{File, Payload};
use super::content::{ContentError, Source};
use super::{config_map, downward_api, secret};

#[derive(Debug, Default)]
pub(super) struct ProjectedSource;

#[async_trait]
impl Source for ProjectedSource {
    const NAME: &'static str = "kubernetes.io/projected";
    const IN_MEMORY: bool = true;

    fn takes(source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Projected { .. })
    }

    fn object(_source: &VolumeSource) -> Option<&str> {
        None
    }

    /// The files of all sources, in order; a later file replaces an earlier one of the same path. All sources
    /// are read before an error is returned.
    async fn payload(
        cx: &OperationContext,
        source: &VolumeSource,
        request: &SetUp,
    ) -> Result<Payload, ContentError> {
        let VolumeSource::Projected { sources, default_mode } = source else {
            return Err(ContentError::WrongSource(request.spec.name()));
        };
        let mut payload = Payload::new();
        let mut errors = Vec::new();
        for source in sources {
            match files(cx, source, request, *default_mode).await {
                Ok(files) => payload.extend(files),
                Err(error) => errors.push(error),
            }
        }
        match ContentError::all(errors) {
            None => Ok(payload),
            Some(error) => Err(error),
        }
    }

    fn found(_inner: &SpecName) -> VolumeSource {
        VolumeSource::Projected { sources: Vec::new(), default_mode: 0 }
    }
}

async fn files(
    cx: &OperationContext,
    source: &Projection,
    request: &SetUp,
    default_mode: u32,
) -> Result<Payload, ContentError> {
    let namespace = &request.pod.meta.namespace;
    match source {
        Projection::Secret(content) => secret::files(&*cx.api, namespace, content, default_mode).await,
        Projection::ConfigMap(content) => config_map::files(&*cx.api, namespace, content, default_mode).await,
        Projection::DownwardApi { items } => downward_api::files(cx, items, &request.pod, default_mode),
        Projection::ServiceAccountToken { audience, expiration, path } => {
            let token = TokenRequest {
                namespace: namespace.clone(),
                account: request.pod.service_account.clone(),
                audiences: Some(audience.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
                expiration: Some(*expiration),
                pod: Reference::to(Kind::Pod, &request.pod.meta),
            };
            let token = cx.api.request_token(&token).await?;
            // With a known user or group of the pod, no other user needs to read the token.
            let private = request.user.is_some() || request.group.is_some();
            let file = File {
                content: Sensitive::new(token.token.reveal().clone().into_bytes()),
                mode: if private { 0o600 } else { default_mode },
                owner: request.user,
            };
            Ok(Payload::from([(path.clone(), file)]))
        }
        Projection::Other { kind } => Err(ContentError::Unsupported(kind.clone())),
    }
}
