//! An API that answers in time, or says that it did not.
//!
//! A server that accepts requests without answering would block its caller for ever: a pod would not be synced any more,
//! and recovery would not end. Wraps another [`ApiSource`]; touches nothing else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{ApiError, ApiSource, Key, Kind, Object, Patch, Token, TokenRequest, Watch};
use crate::clock::{self, Clock};

/// The time limit of a request. A healthy server answers in a fraction of it; after it the caller retries with its own
/// back-off.
const LIMIT: Duration = Duration::from_secs(30);

/// An API whose requests end.
#[derive(Debug)]
pub struct Timely {
    inner: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
}

impl Timely {
    /// The API with a time limit on each request.
    pub fn shared(inner: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Arc<dyn ApiSource> {
        Arc::new(Self { inner, clock })
    }

    async fn ask<T>(&self, request: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        match clock::within(&*self.clock, LIMIT, request).await {
            Some(answer) => answer,
            None => Err(ApiError::Unavailable { reason: format!("no answer in {} s", LIMIT.as_secs()) }),
        }
    }
}

#[async_trait]
impl ApiSource for Timely {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.ask(self.inner.get(key)).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.ask(self.inner.list(kind)).await
    }

    async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, ApiError> {
        self.ask(self.inner.list_in(kind, namespace)).await
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        self.ask(self.inner.watch(kind)).await
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.ask(self.inner.create(object)).await
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.ask(self.inner.update(object)).await
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.ask(self.inner.patch(patch)).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.ask(self.inner.delete(key)).await
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.ask(self.inner.request_token(request)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;
    use crate::testing::OneObject;
    use crate::{Attachment, Meta, Resource};

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_no_answer() {
        let timely = Timely { inner: Arc::new(OneObject::default()), clock: TokioClock::shared() };
        let begun = tokio::time::Instant::now();
        let silent = timely.ask(std::future::pending::<Result<(), ApiError>>()).await;
        assert_eq!(silent, Err(ApiError::Unavailable { reason: "no answer in 30 s".to_owned() }));
        assert_eq!(begun.elapsed(), LIMIT);
        let late = async {
            timely.clock.sleep(LIMIT / 2).await;
            Ok(7)
        };
        assert_eq!(timely.ask(late).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn object_deleted_in_time_is_gone() {
        let timely = Timely::shared(Arc::new(OneObject::default()), TokioClock::shared());
        let attachment = Attachment { meta: Meta::named("", "a"), ..Attachment::default() };
        let key = attachment.key();
        timely.create(attachment.into_object()).await.unwrap();
        timely.delete(&key).await.unwrap();
        assert_eq!(timely.get(&key).await, Err(ApiError::NotFound { key }));
    }
}
