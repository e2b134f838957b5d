//! Services as they were last seen, for the variables of containers: a container also starts while the API is away.

mod links;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::clock::Clock;
use api::follow::{Following, News};
use api::names::Namespaced;
use api::{ApiSource, Kind, Resource, Service};
use tokio::sync::watch;

/// The namespace and the name of the API's own service. Every container has its variables.
const API: (&str, &str) = ("default", "kubernetes");

type Known = BTreeMap<Namespaced, Arc<Service>>;

/// All services, as they were last seen. Clones are the same.
#[derive(Debug, Clone)]
pub struct Services(watch::Receiver<Option<Known>>);

impl Services {
    /// Follows services until the last clone is dropped.
    pub fn follow(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let (known, services) = watch::channel(None);
        tokio::spawn(async move {
            tokio::select! {
                () = known.closed() => {}
                () = keep(Following::new(Kind::Service, api, clock), &known) => {}
            }
        });
        Self(services)
    }

    /// A fixed set of services.
    pub fn fixed(services: impl IntoIterator<Item = Service>) -> Self {
        let mut known = Known::new();
        services.into_iter().for_each(|service| note(&mut known, Arc::new(service)));
        Self(watch::channel(Some(known)).1)
    }

    /// Services that are never listed.
    #[cfg(test)]
    pub(super) fn unread() -> Self {
        Self(watch::channel(None).1)
    }

    /// Waits until all services have been listed.
    pub async fn read(&self) {
        // The sender is dropped only after the last receiver.
        let _ = self.0.clone().wait_for(Option::is_some).await;
    }

    /// The variables of services for the containers of a pod; `None` until all services have been listed.
    pub(super) fn variables(&self, namespace: &str, alone: bool) -> Option<BTreeMap<String, String>> {
        let known = self.0.borrow();
        let visible = visible(known.as_ref()?, namespace, alone);
        Some(visible.into_values().flat_map(links::of).collect())
    }
}

/// The services of a namespace by name, and the API's, unless the namespace has one of the same name.
fn visible<'a>(known: &'a Known, namespace: &str, alone: bool) -> BTreeMap<&'a str, &'a Service> {
    let is_api = |name: &Namespaced| (name.namespace.as_str(), name.name.as_str()) == API;
    let is_near = |name: &Namespaced| name.namespace == namespace && !alone;
    let named = |(name, service): (&'a Namespaced, &'a Arc<Service>)| (name.name.as_str(), &**service);
    let reachable = || known.iter().filter(|(_, service)| service.has_address());
    let api = reachable().filter(|(name, _)| is_api(name)).map(named);
    let near = reachable().filter(|(name, _)| is_near(name)).map(named);
    api.chain(near).collect()
}

/// Follows the services. None is known before all are listed.
async fn keep(mut services: Following, known: &watch::Sender<Option<Known>>) {
    let mut first = Known::new();
    loop {
        let news = services.next().await;
        let all = matches!(news, News::Only(_));
        apply(&mut first, news);
        if all {
            break;
        }
    }
    known.send_replace(Some(first));
    loop {
        let news = services.next().await;
        known.send_modify(|known| apply(known.get_or_insert_default(), news));
    }
}

fn apply(known: &mut Known, news: News) {
    match news {
        News::Applied(object) => {
            if let Some(service) = Service::from_object(object) {
                note(known, service);
            }
        }
        News::Deleted(object) => _ = known.remove(&object.key().namespaced_name()),
        News::Only(there) => known.retain(|_, service| there.contains(&service.key())),
    }
}

fn note(known: &mut Known, service: Arc<Service>) {
    known.insert(service.key().namespaced_name(), service);
}
