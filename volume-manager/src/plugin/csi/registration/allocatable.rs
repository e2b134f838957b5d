//! Refreshes drivers' volume limits: as often as their CSIDriver objects ask for, and at once when an
//! attachment to this node fails because the limit is reached.
//!
//! Follows CSIDriver and VolumeAttachment objects; the [`Registrar`] asks the driver and writes the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::clock::Instant;
use api::follow::{Following, News};
use api::names::{DriverName, NodeName};
use api::{Attachment, CsiDriver, Key, Kind, Object};

use super::Registrar;

/// ResourceExhausted in gRPC.
const EXHAUSTED: i32 = 8;

/// The period and the next refresh of each driver.
#[derive(Debug, Default)]
struct Timetable(BTreeMap<DriverName, (Duration, Instant)>);

impl Timetable {
    /// Takes in a driver's object. A changed period starts from now.
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

    /// Removes drivers whose objects are not in a complete list.
    fn keep_only(&mut self, there: &BTreeSet<Key>) {
        self.0.retain(|name, _| there.contains(&Key::cluster(Kind::CsiDriver, name.as_str())));
    }

    /// The driver to refresh at once: an attachment to this node failed because its limit is reached.
    fn exhausted(&self, attachment: &Attachment, node: &NodeName) -> Option<DriverName> {
        let error = attachment.attach_error.as_ref()?;
        let driver = DriverName::new(&attachment.attacher);
        let here = attachment.node == node.as_str() && error.code == Some(EXHAUSTED);
        (here && self.0.contains_key(&driver)).then_some(driver)
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().map(|(_, next)| *next).min()
    }

    /// Takes the drivers that are due and sets their next refresh.
    fn due(&mut self, now: Instant) -> Vec<DriverName> {
        let due = self.0.iter_mut().filter(|(_, (_, next))| *next <= now);
        due.map(|(name, (period, next))| {
            *next = now + *period;
            name.clone()
        })
        .collect()
    }
}

/// Refreshes limits until the future is dropped.
pub async fn run(registrar: Registrar) {
    let mut timetable = Timetable::default();
    let follow = |kind| Following::new(kind, Arc::clone(&registrar.api), Arc::clone(&registrar.clock));
    let (mut drivers, mut attachments) = (follow(Kind::CsiDriver), follow(Kind::Attachment));
    let mut at_once = None;
    loop {
        let now = registrar.clock.now();
        for driver in timetable.due(now).into_iter().chain(at_once.take()) {
            if let Err(error) = registrar.refresh(&driver).await {
                tracing::warn!(%driver, error = api::error::chain(&error), "cannot refresh the driver's volume limit; the old limit stays until the next refresh");
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
            news = drivers.next() => match news {
                News::Applied(Object::CsiDriver(driver)) => timetable.set(&driver, now),
                News::Deleted(object) => timetable.remove(&DriverName::new(&object.meta().name)),
                News::Only(there) => timetable.keep_only(&there),
                News::Applied(_) => {}
            },
            news = attachments.next() => if let News::Applied(Object::Attachment(attachment)) = news {
                at_once = timetable.exhausted(&attachment, &registrar.config.node);
            },
            () = sleep => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Meta;
    use api::storage::AttachmentError;

    use super::*;

    fn driver(period: Option<u64>) -> CsiDriver {
        CsiDriver { meta: Meta::named("", "d"), allocatable_period: period, ..CsiDriver::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_is_asked_at_once_when_it_has_no_room_on_this_node() {
        let failed = |attacher: &str, node: &str, code| Attachment {
            attacher: attacher.into(),
            node: node.into(),
            attach_error: Some(AttachmentError { message: String::new(), code }),
            ..Attachment::default()
        };
        let mut table = Timetable::default();
        let node = NodeName::from("n");
        assert_eq!(
            table.exhausted(&failed("d", "n", Some(8)), &node),
            None,
            "the driver's object does not ask for refreshes"
        );
        table.set(&driver(Some(60)), Instant::now());
        assert_eq!(table.exhausted(&failed("d", "n", Some(8)), &node), Some("d".into()));
        assert_eq!(table.exhausted(&failed("d", "m", Some(8)), &node), None, "another node");
        assert_eq!(table.exhausted(&failed("e", "n", Some(8)), &node), None, "another driver");
        assert_eq!(table.exhausted(&failed("d", "n", Some(13)), &node), None, "another reason");
        let attached = Attachment { attach_error: None, ..failed("d", "n", None) };
        assert_eq!(table.exhausted(&attached, &node), None);
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
        for never in [None, Some(0)] {
            table.set(&driver(Some(10)), after(70));
            table.set(&driver(never), after(71));
            assert_eq!(table.next(), None, "{never:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_whose_object_has_gone_unheard_is_not_asked_any_more() {
        let mut table = Timetable::default();
        table.set(&driver(Some(60)), Instant::now());
        table.keep_only(&BTreeSet::from([Key::cluster(Kind::CsiDriver, "d")]));
        assert!(table.next().is_some());
        table.keep_only(&BTreeSet::from([Key::cluster(Kind::CsiDriver, "another")]));
        assert_eq!(table.next(), None);
    }
}
