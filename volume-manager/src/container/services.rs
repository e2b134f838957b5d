//! The services a container is told of, as they were last seen: it starts also while the API is away.

mod links;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::api::{ApiSource, Change, Kind, Resource, Service};
use crate::clock::Clock;
use crate::names::Namespaced;

/// The namespace and the name of the service that is the API. Every container is told of it.
const API: (&str, &str) = ("default", "kubernetes");

/// How long to wait before following again what could not be followed.
const AGAIN: Duration = Duration::from_secs(1);

type Known = BTreeMap<Namespaced, Arc<Service>>;

/// All services, as they were last seen. Clones are the same.
#[derive(Debug, Clone)]
pub struct Services(watch::Receiver<Option<Known>>);

impl Services {
    /// Follows them for as long as anybody has this.
    pub fn follow(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let (known, services) = watch::channel(None);
        tokio::spawn(async move {
            tokio::select! {
                () = known.closed() => {}
                () = keep(&*api, &*clock, &known) => {}
            }
        });
        Self(services)
    }

    /// These, which never change.
    pub fn fixed(services: impl IntoIterator<Item = Service>) -> Self {
        let mut known = Known::new();
        services.into_iter().for_each(|service| note(&mut known, Arc::new(service)));
        Self(watch::channel(Some(known)).1)
    }

    /// Nobody has read them.
    #[cfg(test)]
    pub(super) fn unread() -> Self {
        Self(watch::channel(None).1)
    }

    /// Returns once they have been read.
    pub async fn read(&self) {
        // It fails only when nobody follows them any more, and whoever does goes on as long as this is there.
        let _ = self.0.clone().wait_for(Option::is_some).await;
    }

    /// What the containers of a pod are told; `None` as long as the services have not been read.
    pub(super) fn variables(&self, namespace: &str, alone: bool) -> Option<BTreeMap<String, String>> {
        let known = self.0.borrow();
        let told = told(known.as_ref()?, namespace, alone);
        Some(told.into_values().flat_map(links::of).collect())
    }
}

/// The services of a namespace by their names, and the API. One of the same name in the namespace itself is nearer.
fn told<'a>(known: &'a Known, namespace: &str, alone: bool) -> BTreeMap<&'a str, &'a Service> {
    let is_api = |name: &Namespaced| (name.namespace.as_str(), name.name.as_str()) == API;
    let is_near = |name: &Namespaced| name.namespace == namespace && !alone;
    let named = |(name, service): (&'a Namespaced, &'a Arc<Service>)| (name.name.as_str(), &**service);
    let reachable = || known.iter().filter(|(_, service)| service.has_address());
    let api = reachable().filter(|(name, _)| is_api(name)).map(named);
    let near = reachable().filter(|(name, _)| is_near(name)).map(named);
    api.chain(near).collect()
}

/// Follows them for ever. A stream that ends is begun again, with everything that exists.
async fn keep(api: &dyn ApiSource, clock: &dyn Clock, known: &watch::Sender<Option<Known>>) {
    loop {
        match api.watch(Kind::Service).await {
            Ok(mut watch) => {
                // Until all is there again, what was known before is the better answer.
                let mut read = Some(Known::new());
                while let Some(change) = watch.recv().await {
                    if change == Change::Synced {
                        known.send_if_modified(|known| read.take().map(|read| *known = Some(read)).is_some());
                    } else if let Some(read) = &mut read {
                        apply(read, change);
                    } else {
                        known.send_modify(|known| apply(known.get_or_insert_default(), change));
                    }
                }
            }
            Err(error) => tracing::debug!(error = crate::error::chain(&error), "cannot follow services"),
        }
        clock.sleep(AGAIN).await;
    }
}

fn apply(known: &mut Known, change: Change) {
    match change {
        Change::Applied(object) => {
            if let Some(service) = Service::from_object(object) {
                note(known, service);
            }
        }
        Change::Deleted(object) => _ = known.remove(&object.key().namespaced_name()),
        Change::Synced => {}
    }
}

fn note(known: &mut Known, service: Arc<Service>) {
    known.insert(service.key().namespaced_name(), service);
}
