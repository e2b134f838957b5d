//! A few API objects that can be read and patched, and an API that can be away.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::api::{
    ApiError, ApiSource, Claim, Key, Kind, Object, Patch, PatchBody, Resource, Sensitive, Token,
    TokenRequest, Watch,
};

#[derive(Debug, Default)]
pub(crate) struct ToyApi {
    objects: Mutex<BTreeMap<Key, Object>>,
    away: Mutex<bool>,
}

impl ToyApi {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<Key, Object>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, object: Object) {
        self.objects().insert(object.key(), object);
    }

    /// Whether nobody answers.
    pub(crate) fn set_away(&self, away: bool) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = away;
    }

    fn check(&self) -> Result<(), ApiError> {
        match *self.away.lock().unwrap_or_else(PoisonError::into_inner) {
            true => Err(ApiError::Unavailable { reason: "it is away".into() }),
            false => Ok(()),
        }
    }

    pub(crate) fn claim(&self, namespace: &str, name: &str) -> Claim {
        let key = Key::namespaced(Kind::Claim, namespace, name);
        let object = self.objects().get(&key).cloned().expect("the claim was put in");
        Claim::from_object(object).expect("it is a claim").as_ref().clone()
    }
}

#[async_trait]
impl ApiSource for ToyApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.check()?;
        self.objects().get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.check()?;
        Ok(self.objects().values().filter(|object| object.kind() == kind).cloned().collect())
    }

    async fn watch(&self, _kind: Kind) -> Result<Watch, ApiError> {
        unreachable!("operations watch nothing")
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.check()?;
        self.put(object.clone());
        Ok(object)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.create(object).await
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.check()?;
        let mut objects = self.objects();
        let object = objects.get_mut(&patch.key);
        let object = object.ok_or_else(|| ApiError::NotFound { key: patch.key.clone() })?;
        let PatchBody::ClaimStatus(status) = patch.body else {
            unreachable!("operations on volumes patch only the status of claims")
        };
        let mut claim =
            Claim::from_object(object.clone()).expect("only claims have such a status").as_ref().clone();
        claim.status.capacity = status.capacity.unwrap_or(claim.status.capacity);
        claim.status.allocated = status.allocated.or(claim.status.allocated);
        claim.status.resize = status.resize.unwrap_or(claim.status.resize);
        claim.status.conditions = status.conditions.unwrap_or(claim.status.conditions);
        *object = claim.into_object();
        Ok(object.clone())
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.check()?;
        self.objects().remove(key);
        Ok(())
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.check()?;
        let token = format!("secret-token-for-{}", request.audiences.join("+"));
        Ok(Token { token: Sensitive::new(token), expires: "2030-01-01T00:00:00Z".into() })
    }
}
