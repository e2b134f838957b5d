//! An API whose tokens are kept until they are about to end, as the kubelet's token manager keeps them.
//!
//! Every look at a pod asks for its tokens. A new one each time would be a new version of the volume's content, and
//! another one for each call that a driver is made again. Wraps another [`ApiSource`]; touches nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{ApiError, ApiSource, Key, Kind, Object, Patch, Token, TokenRequest, Watch};
use crate::clock::{Clock, Instant};

/// The lifetime of a token whose request names none.
const DEFAULT_LIFE: Duration = Duration::from_secs(3600);

/// No token is kept for longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// An API that is asked for a token once for most of its life.
#[derive(Debug)]
pub struct KeptTokens {
    inner: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    kept: Mutex<BTreeMap<Asked, Kept>>,
}

/// Everything that makes one token another: account, audiences, life and the pod's uid.
type Asked = (String, String, Vec<String>, Option<i64>, String);

#[derive(Debug)]
struct Kept {
    token: Token,
    /// When another one is asked for.
    renew: Instant,
    ends: Instant,
}

impl KeptTokens {
    pub fn new(inner: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, clock, kept: Mutex::default() }
    }

    /// Forgets the tokens of a pod that is gone.
    pub fn forget(&self, pod_uid: &str) {
        self.kept().retain(|(.., uid), _| uid != pod_uid);
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Asked, Kept>> {
        // Entries are replaced whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token that is kept for a request, where it has not ended; and whether it is to be used without asking.
    fn known(&self, asked: &Asked) -> Option<(Token, bool)> {
        let now = self.clock.now();
        let mut kept = self.kept();
        kept.retain(|_, kept| now < kept.ends);
        kept.get(asked).map(|kept| (kept.token.clone(), now < kept.renew))
    }
}

#[async_trait]
impl ApiSource for KeptTokens {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.inner.get(key).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.inner.list(kind).await
    }

    async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, ApiError> {
        self.inner.list_in(kind, namespace).await
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
        let TokenRequest { namespace, account, audiences, expiration, pod } = request;
        let asked = (namespace.clone(), account.clone(), audiences.clone(), *expiration, pod.uid.clone());
        let known = self.known(&asked);
        if let Some((token, true)) = known {
            return Ok(token);
        }
        let now = self.clock.now();
        let token = match (self.inner.request_token(request).await, known) {
            (Ok(token), _) => token,
            // The old one is good for a while, and the next look asks again.
            (Err(error), Some((old, _))) => {
                tracing::warn!(%error, account, "cannot renew a token; the old one is used");
                return Ok(old);
            }
            (Err(error), None) => return Err(error),
        };
        let life = expiration.map_or(DEFAULT_LIFE, |seconds| Duration::from_secs(seconds.unsigned_abs()));
        let renew = now + life.mul_f64(0.8).min(LONGEST);
        self.kept().insert(asked, Kept { token: token.clone(), renew, ends: now + life });
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::clock::AdvancingClock;
    use crate::testing::OneObject;
    use crate::{Reference, Sensitive};

    /// An API that issues numbered tokens, and fails on order.
    #[derive(Debug, Default)]
    struct Numbered {
        given: AtomicU64,
        fails: std::sync::atomic::AtomicBool,
    }

    #[async_trait]
    impl ApiSource for Numbered {
        async fn get(&self, key: &Key) -> Result<Object, ApiError> {
            OneObject::default().get(key).await
        }

        async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
            OneObject::default().list(kind).await
        }

        async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
            OneObject::default().watch(kind).await
        }

        async fn create(&self, object: Object) -> Result<Object, ApiError> {
            OneObject::default().create(object).await
        }

        async fn update(&self, object: Object) -> Result<Object, ApiError> {
            OneObject::default().update(object).await
        }

        async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
            OneObject::default().patch(patch).await
        }

        async fn delete(&self, key: &Key) -> Result<(), ApiError> {
            OneObject::default().delete(key).await
        }

        async fn request_token(&self, _request: &TokenRequest) -> Result<Token, ApiError> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(ApiError::Unavailable { reason: "down".to_owned() });
            }
            let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(Token { token: Sensitive::new(number.to_string()), expires: String::new() })
        }
    }

    struct Scene {
        server: Arc<Numbered>,
        clock: AdvancingClock,
        tokens: KeptTokens,
    }

    impl Scene {
        fn new() -> Self {
            let (server, clock) = (Arc::new(Numbered::default()), AdvancingClock::default());
            let inner: Arc<dyn ApiSource> = Arc::<Numbered>::clone(&server);
            let tokens = KeptTokens::new(inner, Arc::new(clock.clone()));
            Self { server, clock, tokens }
        }

        async fn ask(&self, pod_uid: &str, seconds: i64) -> Option<String> {
            let pod = Reference {
                kind: Kind::Pod,
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                uid: pod_uid.to_owned(),
            };
            let request = TokenRequest {
                namespace: "default".to_owned(),
                account: "default".to_owned(),
                audiences: vec!["vault".to_owned()],
                expiration: Some(seconds),
                pod,
            };
            let token = self.tokens.request_token(&request).await.ok()?;
            Some(token.token.reveal().clone())
        }

        fn pass(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_kept_for_four_fifths_of_its_life() {
        let scene = Scene::new();
        assert_eq!(scene.ask("a", 1000).await.as_deref(), Some("1"));
        scene.pass(799);
        assert_eq!(scene.ask("a", 1000).await.as_deref(), Some("1"));
        scene.pass(2);
        assert_eq!(scene.ask("a", 1000).await.as_deref(), Some("2"));
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_renewed_after_a_day_at_the_latest() {
        let scene = Scene::new();
        scene.ask("a", 1_000_000).await;
        scene.pass(24 * 3600 + 1);
        assert_eq!(scene.ask("a", 1_000_000).await.as_deref(), Some("2"));
    }

    #[tokio::test(start_paused = true)]
    async fn token_of_another_pod_or_life_is_another() {
        let scene = Scene::new();
        scene.ask("a", 1000).await;
        assert_eq!(scene.ask("b", 1000).await.as_deref(), Some("2"));
        assert_eq!(scene.ask("a", 2000).await.as_deref(), Some("3"));
        scene.tokens.forget("a");
        assert_eq!(scene.ask("a", 1000).await.as_deref(), Some("4"));
        assert_eq!(scene.ask("b", 1000).await.as_deref(), Some("2"));
    }

    #[tokio::test(start_paused = true)]
    async fn token_that_cannot_be_renewed_is_used_until_it_ends() {
        let scene = Scene::new();
        scene.ask("a", 1000).await;
        scene.server.fails.store(true, Ordering::Relaxed);
        scene.pass(900);
        assert_eq!(scene.ask("a", 1000).await.as_deref(), Some("1"));
        scene.pass(101);
        assert_eq!(scene.ask("a", 1000).await, None);
    }
}
