//! Tokens of service accounts that name their pod and their expiry.

use std::time::Duration;

use api::{Sensitive, Token, TokenRequest};

/// The content of a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Issued {
    /// The UID of its pod.
    pub(crate) pod: String,
    /// The expiry, in seconds of the simulated clock.
    until: u64,
}

impl Issued {
    /// Issues a token that lasts an hour if the request names no time.
    pub(super) fn at(now: Duration, request: &TokenRequest) -> Token {
        let lasts = request.expiration.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(3600);
        let until = now + Duration::from_secs(lasts);
        let token = format!("{}@{}", request.pod.uid, until.as_secs());
        Token { token: Sensitive::new(token), expires: "2030-01-01T00:00:00Z".to_owned() }
    }

    pub(crate) fn read(token: &str) -> Option<Self> {
        let (pod, until) = token.split_once('@')?;
        Some(Self { pod: pod.to_owned(), until: until.parse().ok()? })
    }

    pub(crate) fn has_run_out(&self, now: Duration) -> bool {
        now.as_secs() > self.until
    }
}
