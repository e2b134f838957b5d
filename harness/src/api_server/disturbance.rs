//! Faults between the node and the API. Touches nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{ApiError, Kind};

/// The faults of requests about one kind.
#[derive(Debug, Clone, Default)]
pub struct Disturbance {
    /// The kind of object; none for all.
    pub kind: Option<Kind>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `token`; empty for all.
    pub verb: String,
    /// Answer after so long.
    pub delay: Duration,
    /// Do not answer, for this reason.
    pub unavailable: Option<String>,
    /// For this number of requests; without it for all that follow.
    pub times: Option<u32>,
}

/// All disturbances of a api.
#[derive(Debug, Default)]
pub(super) struct Disturbances(Mutex<Vec<Disturbance>>);

impl Disturbances {
    pub(super) fn add(&self, disturbance: Disturbance) {
        self.all().push(disturbance);
    }

    pub(super) fn clear(&self) {
        self.all().clear();
    }

    /// Applies the faults to a request.
    pub(super) async fn meet(&self, verb: &str, kind: Kind) -> Result<(), ApiError> {
        let Some(disturbance) = self.take(verb, kind) else { return Ok(()) };
        if !disturbance.delay.is_zero() {
            tokio::time::sleep(disturbance.delay).await;
        }
        match disturbance.unavailable {
            Some(reason) => Err(ApiError::Unavailable { reason }),
            None => Ok(()),
        }
    }

    fn take(&self, verb: &str, kind: Kind) -> Option<Disturbance> {
        let mut all = self.all();
        let meant = |known: &Disturbance| {
            let of_kind = known.kind.is_none_or(|wanted| wanted == kind);
            of_kind && (known.verb.is_empty() || known.verb == verb) && known.times != Some(0)
        };
        let found = all.iter_mut().rfind(|known| meant(known))?;
        found.times = found.times.map(|times| times - 1);
        Some(found.clone())
    }

    fn all(&self) -> MutexGuard<'_, Vec<Disturbance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
