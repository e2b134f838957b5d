//! Asking drivers from time to time how many volumes fit the node, as often as their CSIDriver objects say.
//!
//! Follows those objects; what is asked and written is the [`Registrar`]'s.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Registrar;
use crate::api::{Change, CsiDriver, Kind, Object};
use crate::clock::Instant;
use crate::names::DriverName;

/// When whom to ask next, and how often.
#[derive(Debug, Default)]
struct Timetable(BTreeMap<DriverName, (Duration, Instant)>);

impl Timetable {
    /// A driver's object says how often. Another period than before begins anew.
    fn set(&mut self, driver: &CsiDriver, now: Instant) {
        let name = DriverName::new(&driver.meta.name);
        match driver.allocatable_period.filter(|seconds| *seconds > 0).map(Duration::from_secs) {
            None => self.remove(&name),
            Some(period) if self.0.get(&name).is_some_and(|(known, _)| *known == period) => {}
            Some(period) => {
                self.0.insert(name, (period, now + period));
            }
        }
    }

    fn remove(&mut self, name: &DriverName) {
        self.0.remove(name);
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().map(|(_, next)| *next).min()
    }

    /// Those whose time has come; their next is a period later.
    fn due(&mut self, now: Instant) -> Vec<DriverName> {
        let due = self.0.iter_mut().filter(|(_, (_, next))| *next <= now);
        due.map(|(name, (period, next))| {
            *next = now + *period;
            name.clone()
        })
        .collect()
    }
}

/// Asks until it is dropped, or the API can no longer be watched.
pub async fn run(registrar: Registrar) {
    let mut timetable = Timetable::default();
    let mut changes = match registrar.api.watch(Kind::CsiDriver).await {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "limits of drivers are not asked for again");
            return;
        }
    };
    loop {
        let now = registrar.clock.now();
        for driver in timetable.due(now) {
            if let Err(error) = registrar.refresh(&driver).await {
                tracing::warn!(%driver, error = crate::error::chain(&error), "its limit is not known");
            }
        }
        let next = timetable.next();
        let sleep = async {
            match next {
                Some(next) => registrar.clock.sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            change = changes.recv() => match change {
                Some(Change::Applied(Object::CsiDriver(driver))) => timetable.set(&driver, now),
                Some(Change::Deleted(object)) => timetable.remove(&DriverName::new(&object.meta().name)),
                Some(_) => {}
                None => return,
            },
            () = sleep => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Meta;

    fn driver(period: Option<u64>) -> CsiDriver {
        CsiDriver { meta: Meta::named("", "d"), allocatable_period: period, ..CsiDriver::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_is_asked_once_a_period_and_another_period_begins_anew() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut table = Timetable::default();
        table.set(&driver(Some(60)), began);
        table.set(&driver(Some(60)), after(30));
        assert_eq!(table.next(), Some(after(60)), "the same object again changes nothing");
        assert!(table.due(after(59)).is_empty());
        assert_eq!(table.due(after(61)).len(), 1);
        assert_eq!(table.next(), Some(after(121)));
        table.set(&driver(Some(10)), after(70));
        assert_eq!(table.next(), Some(after(80)));
        table.set(&driver(None), after(71));
        assert_eq!(table.next(), None);
    }
}
