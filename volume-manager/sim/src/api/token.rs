//! Tokens of service accounts: whose they are and until when they last can be read from them.

use std::time::Duration;

use api::{Sensitive, Token, TokenRequest};

/// What one says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Issued {
    /// The UID of its pod.
    pub(crate) pod: String,
    /// Seconds of the simulated clock until which it lasts.
    until: u64,
}

impl Issued {
    /// One that has just been asked for.
    pub(super) fn at(now: Duration, request: &TokenRequest) -> Token {
        let lasts = request.expiration.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(3600);
        let until = now + Duration::from_secs(lasts);
        let token = format!("{}@{}", request.pod.uid, until.as_secs());
        Token { token: Sensitive::new(token), expires: "2030-01-01T00:00:00Z".to_owned() }
    }

    /// Reads one.
    pub(crate) fn read(token: &str) -> Option<Self> {
        let (pod, until) = token.split_once('@')?;
        Some(Self { pod: pod.to_owned(), until: until.parse().ok()? })
    }

    pub(crate) fn has_run_out(&self, now: Duration) -> bool {
        now.as_secs() > self.until
    }
}
