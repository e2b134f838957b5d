//! An API in memory that counts the objects that it answers.

use std::sync::atomic::{AtomicU64, Ordering};

use api::{ApiError, ApiSource, Key, Kind, Object, Patch, Token, TokenRequest, Watch};
use async_trait::async_trait;
use testing::MemoryApi;

#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) inner: MemoryApi,
    read: AtomicU64,
}

impl Counting {
    /// The objects that were read since the last time this was asked.
    pub(crate) fn take_read(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }

    fn count(&self, objects: usize) {
        self.read.fetch_add(objects as u64, Ordering::Relaxed);
    }
}

#[async_trait]
impl ApiSource for Counting {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.count(1);
        self.inner.get(key).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        let listed = self.inner.list(kind).await?;
        self.count(listed.len());
        Ok(listed)
    }

    async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, ApiError> {
        let listed = self.inner.list_in(kind, namespace).await?;
        self.count(listed.len());
        Ok(listed)
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        self.inner.watch(kind).await
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.inner.create(object).await
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.inner.update(object).await
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.inner.patch(patch).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.inner.delete(key).await
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.inner.request_token(request).await
    }
}
