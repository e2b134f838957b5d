//! A registered driver's entries in the API: an annotation and labels of the Node, and an entry in its CSINode
//! object.
//!
//! Reads and writes those two objects.

use std::collections::BTreeMap;
use std::time::Duration;

use api::clock::Clock;
use api::names::{DriverName, NodeName};
use api::{
    ApiError, ApiSource, CsiNode, CsiNodeDriver, Key, Kind, Meta, Node, Owner, Patch, PatchBody, Resource,
};
use csi_proto::v1::NodeGetInfoResponse;

use super::RegistrationError;

/// The annotation that maps each driver to its id for the node, as JSON.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";

/// The number of attempts, the first pause between two of them, and the factor by which it grows.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);
const FACTOR: u32 = 5;

/// Writes a driver's answer to NodeGetInfo into the node's objects.
pub(super) async fn enter(
    api: &dyn ApiSource,
    clock: &dyn Clock,
    node: &NodeName,
    driver: &DriverName,
    info: &NodeGetInfoResponse,
) -> Result<(), RegistrationError> {
    let record = Record { api, node, driver };
    again(clock, || record.enter_node(info)).await?;
    again(clock, || record.enter_csi_node(info)).await
}

/// Removes a driver from the node's objects. Its topology labels stay, as with the kubelet.
pub(super) async fn remove(
    api: &dyn ApiSource,
    clock: &dyn Clock,
    node: &NodeName,
    driver: &DriverName,
) -> Result<(), RegistrationError> {
    let record = Record { api, node, driver };
    again(clock, || record.leave_csi_node()).await?;
    again(clock, || record.leave_node()).await
}

/// Repeats an attempt that fails at the API: other writers of the same objects cause conflicts.
async fn again<F>(clock: &dyn Clock, attempt: impl Fn() -> F) -> Result<(), RegistrationError>
where
    F: Future<Output = Result<(), RegistrationError>>,
{
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(RegistrationError::Api(_)) => {}
            outcome => return outcome,
        }
        clock.sleep(pause).await;
        pause *= FACTOR;
    }
    attempt().await
}

struct Record<'a> {
    api: &'a dyn ApiSource,
    node: &'a NodeName,
    driver: &'a DriverName,
}

impl Record<'_> {
    async fn enter_node(&self, info: &NodeGetInfoResponse) -> Result<(), RegistrationError> {
        let node = api::get::<Node>(self.api, "", self.node.as_str()).await?;
        let mut labels = BTreeMap::new();
        for (key, wanted) in segments(info) {
            match node.meta.labels.get(key) {
                Some(present) if present == wanted => {}
                Some(present) => {
                    let (wanted, present) = (wanted.clone(), present.clone());
                    return Err(RegistrationError::Topology { key: key.clone(), wanted, present });
                }
                None => {
                    labels.insert(key.clone(), Some(wanted.clone()));
                }
            }
        }
        let mut ids = node_ids(&node);
        ids.insert(self.driver.to_string(), info.node_id.clone());
        self.patch_node(&node, labels, &ids).await
    }

    async fn leave_node(&self) -> Result<(), RegistrationError> {
        let node = match api::get::<Node>(self.api, "", self.node.as_str()).await {
            Err(error) if error.is_not_found() => return Ok(()),
            node => node?,
        };
        let mut ids = node_ids(&node);
        match ids.remove(self.driver.as_str()) {
            Some(_) => self.patch_node(&node, BTreeMap::new(), &ids).await,
            None => Ok(()),
        }
    }

    async fn patch_node(
        &self,
        node: &Node,
        labels: BTreeMap<String, Option<String>>,
        ids: &BTreeMap<String, String>,
    ) -> Result<(), RegistrationError> {
        let text = serde_json::to_string(ids).expect("a map of strings is always valid JSON");
        let annotation = Some(text).filter(|_| !ids.is_empty());
        let annotations = BTreeMap::from([(NODE_IDS.to_owned(), annotation)]);
        let body = PatchBody::Metadata { labels, annotations };
        self.api.patch(Patch::of_version(node.key(), &node.meta, body)).await?;
        Ok(())
    }

    async fn enter_csi_node(&self, info: &NodeGetInfoResponse) -> Result<(), RegistrationError> {
        let entry = CsiNodeDriver {
            name: self.driver.to_string(),
            node_id: info.node_id.clone(),
            topology_keys: segments(info).map(|(key, _)| key.clone()).collect(),
            allocatable: allocatable(self.driver, info.max_volumes_per_node),
        };
        let node = api::get::<Node>(self.api, "", self.node.as_str()).await?;
        match api::get::<CsiNode>(self.api, "", self.node.as_str()).await {
            Ok(present) if present.meta.owners.iter().any(|owner| owner.uid != node.meta.uid) => {
                // The object belongs to a deleted node of the same name.
                self.api.delete(&present.key()).await?;
                self.create(&node, entry).await
            }
            Ok(present) => {
                let mut drivers = present.drivers.clone();
                drivers.retain(|driver| driver.name != entry.name);
                drivers.push(entry);
                self.patch_csi_node(&present, drivers).await
            }
            Err(error) if error.is_not_found() => self.create(&node, entry).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn create(&self, node: &Node, entry: CsiNodeDriver) -> Result<(), RegistrationError> {
        let owner = Owner {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.meta.name.clone(),
            uid: node.meta.uid.clone(),
            ..Owner::default()
        };
        let meta = Meta { owners: vec![owner], ..Meta::named("", self.node.as_str()) };
        self.api.create(CsiNode { meta, drivers: vec![entry] }.into_object()).await?;
        Ok(())
    }

    async fn leave_csi_node(&self) -> Result<(), RegistrationError> {
        let present = match api::get::<CsiNode>(self.api, "", self.node.as_str()).await {
            Err(error) if error.is_not_found() => return Ok(()),
            present => present?,
        };
        let mut drivers = present.drivers.clone();
        drivers.retain(|driver| driver.name != self.driver.as_str());
        match drivers.len() == present.drivers.len() {
            true => Ok(()),
            false => self.patch_csi_node(&present, drivers).await,
        }
    }

    async fn patch_csi_node(
        &self,
        present: &CsiNode,
        drivers: Vec<CsiNodeDriver>,
    ) -> Result<(), RegistrationError> {
        let key = Key::cluster(Kind::CsiNode, self.node.as_str());
        let body = PatchBody::CsiNodeDrivers(drivers);
        self.api.patch(Patch::of_version(key, &present.meta, body)).await.map(drop).map_err(ApiError::into)
    }
}

/// The topology segments, sorted by key.
fn segments(info: &NodeGetInfoResponse) -> impl Iterator<Item = (&String, &String)> {
    info.accessible_topology.iter().flat_map(|topology| &topology.segments)
}

/// The node ids in the annotation; empty if it cannot be parsed, so that it is written anew.
fn node_ids(node: &Node) -> BTreeMap<String, String> {
    let text = node.meta.annotations.get(NODE_IDS);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The driver's volume limit. Zero and negative values stand for no limit.
fn allocatable(driver: &DriverName, max: i64) -> Option<i32> {
    if max < 0 {
        tracing::warn!(%driver, max, "the driver reports a negative volume limit; it is ignored");
    }
    (max > 0).then(|| i32::try_from(max).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::MemoryApi;

    #[tokio::test]
    async fn unregistration_succeeds_without_a_node_and_fails_without_the_api() {
        let (api, node, driver) = (MemoryApi::default(), NodeName::from("n"), DriverName::from("d"));
        let record = Record { api: &api, node: &node, driver: &driver };
        for away in [false, true] {
            api.set_away(away);
            assert_eq!(record.leave_csi_node().await.is_err(), away);
            assert_eq!(record.leave_node().await.is_err(), away);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn four_attempts_have_a_little_more_time_each() {
        let clock = api::clock::TokioClock;
        let (began, attempts) = (clock.now(), std::cell::RefCell::new(Vec::new()));
        let attempt = || {
            attempts.borrow_mut().push((clock.now() - began).as_millis());
            let away = ApiError::Unavailable { reason: "it is away".to_owned() };
            std::future::ready(Err(RegistrationError::from(away)))
        };
        again(&clock, attempt).await.unwrap_err();
        assert_eq!(*attempts.borrow(), [0, 10, 60, 310]);
    }

    #[test]
    fn a_limit_is_positive_and_fits() {
        let of = |max| allocatable(&"d".into(), max);
        assert_eq!([of(0), of(-1), of(7), of(i64::MAX)], [None, None, Some(7), Some(i32::MAX)]);
    }

    #[test]
    fn an_annotation_of_nonsense_names_no_driver() {
        let mut node = Node::default();
        assert!(node_ids(&node).is_empty());
        node.meta.annotations.insert(NODE_IDS.into(), "[1]".into());
        assert!(node_ids(&node).is_empty());
        node.meta.annotations.insert(NODE_IDS.into(), r#"{"d":"n"}"#.into());
        assert_eq!(node_ids(&node), BTreeMap::from([("d".into(), "n".into())]));
    }
}
