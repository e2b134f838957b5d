//! An API with a single attachment, for the tests of what wraps an [`ApiSource`].

use std::sync::Mutex;

use async_trait::async_trait;

use crate::{ApiError, ApiSource, Key, Kind, Object, Patch, Token, TokenRequest, Watch};

/// Holds at most one object, and refuses what no test here asks for.
#[derive(Debug, Default)]
pub(crate) struct OneObject(Mutex<Option<Object>>);

impl OneObject {
    fn refuse<T>(key: Key) -> Result<T, ApiError> {
        Err(ApiError::Refused { key, reason: "no test asks for this".to_owned() })
    }
}

#[async_trait]
impl ApiSource for OneObject {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        let object = self.0.lock().unwrap().clone().filter(|object| object.key() == *key);
        object.ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        Self::refuse(Key::cluster(kind, ""))
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        Self::refuse(Key::cluster(kind, ""))
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        *self.0.lock().unwrap() = Some(object.clone());
        Ok(object)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        Self::refuse(object.key())
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        Self::refuse(patch.key)
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.get(key).await?;
        *self.0.lock().unwrap() = None;
        Ok(())
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        Self::refuse(Key::namespaced(Kind::Pod, &request.namespace, &request.account))
    }
}
