//! A play of manifests: all pods at once, with their news.

use std::collections::BTreeSet;
use std::time::Duration;

use api::VolumeSource;
use contracts::event::{Emitted, Event, TraceLine};
use harness::journal::Journal;
use serde_json::Value;

use super::manifest;
use super::world::World;
use testbed::dead_end::{Following, Search};
use testbed::failure::chain;

/// In place of the path of an image's volume, which the runtime of a container mounts.
pub(super) const NO_IMAGE: &str = "an image, and no image is pulled here";

/// The time for pods to be gone.
const LIMIT: Duration = Duration::from_secs(30);

impl World {
    /// Gives every pod to the node.
    pub(super) fn add_all(&mut self) -> Result<(), Vec<String>> {
        self.scenario.pods.clone().iter().try_for_each(|document| self.add(document))
    }

    /// Gives a pod to the node.
    pub(super) fn add(&mut self, document: &Value) -> Result<(), Vec<String>> {
        let root = Self::root_path(&self.layout).to_string_lossy().into_owned();
        let pod = manifest::pod(document, &root).map_err(|error| chain(&error))?;
        let name = pod.meta.name.clone();
        for volume in &pod.volumes {
            if let VolumeSource::Csi(_) = &volume.source {
                let (symbols, uid) = (self.journal_of(&name).symbols(), format!("uid-{name}"));
                symbols.name_inline(
                    volume.name.as_str(),
                    if pod.meta.uid.is_empty() { &uid } else { &pod.meta.uid },
                );
            }
        }
        self.place(document);
        self.node_of(&name).add_pod(pod).map_err(|error| chain(&error))?;
        self.pods.insert(name);
        Ok(())
    }

    /// Removes a pod from the node, and waits until nothing of it is left.
    pub(super) async fn remove(&mut self, name: &str) -> Result<(), String> {
        let failed = |error| chain(&error).join(": ");
        self.node_of(name).remove_pod(name, false).await.map_err(failed)?;
        self.pods.remove(name);
        self.node_of(name).wait_gone(name, LIMIT).await.map_err(failed)
    }

    /// The news since the last call: events of Kubernetes, and the story if nothing is under way.
    pub(super) async fn news(&mut self) -> Vec<String> {
        let mut lines = events(&self.bed.journal, &mut self.printed, |_| true);
        if let Some(other) = &self.other.node {
            // Events about claims are in the first journal as well.
            let of_pods = |event: &Emitted| event.obj.starts_with("pod/");
            lines.extend(Self::with_name(events(&other.journal, &mut self.other.printed, of_pods)));
        }
        lines.extend(self.story().await.lines().map(str::to_owned));
        lines
    }

    /// Whether every pod has its volumes.
    pub(super) async fn all_mounted(&self) -> bool {
        for pod in &self.pods {
            if self.node_of(pod).wait_mounted(pod, Duration::ZERO).await.is_err() {
                return false;
            }
        }
        true
    }

    /// The pods without their volumes, the warnings about them and about other objects, and the manager's whole state.
    pub(super) async fn not_ready(&self, after: Duration) -> String {
        let mut lacking = Vec::new();
        for pod in &self.pods {
            if self.node_of(pod).wait_mounted(pod, Duration::ZERO).await.is_err() {
                lacking.push(pod.as_str());
            }
        }
        let lack = format!("after {} s these pods lack volumes: {}", after.as_secs(), lacking.join(", "));
        let is_about = |object: &str| match object.strip_prefix("pod/") {
            Some(pod) => lacking.contains(&pod),
            None => true,
        };
        let is_warning = |event: &Emitted| event.kind == "Warning" && is_about(&event.obj);
        let mut warnings: BTreeSet<String> = events(&self.journal, &mut 0, is_warning).into_iter().collect();
        let of_other = self.other_node().map(|other| events(&other.journal, &mut 0, is_warning));
        warnings.extend(of_other.unwrap_or_default());
        std::iter::once(lack).chain(warnings).chain(self.state().await).collect::<Vec<_>>().join("\n")
    }

    /// The paths of the volumes of each pod.
    pub(super) async fn volume_paths(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for pod in &self.pods {
            for (name, volume) in self.node_of(pod).mounted_volumes(pod).await.unwrap_or_default() {
                let path = volume.mounted.path.display().to_string();
                let shown = if path.is_empty() { NO_IMAGE } else { &path };
                lines.push(format!("  {pod}/{name}  {shown}"));
            }
        }
        lines
    }

    /// Removes all pods, and waits until they are gone or the driver refuses for good. Says what would not go.
    pub(super) async fn take_down_pods(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for pod in std::mem::take(&mut self.pods) {
            match self.node_of(&pod).remove_pod(&pod, false).await {
                Ok(()) => self.leaving.push((pod, self.time.now())),
                Err(error) => left.push(chain(&error).join(": ")),
            }
        }
        let of_other = self.other_node().map(|other| other.journal.clone());
        let journals = std::iter::once(self.journal.clone()).chain(of_other);
        let mut searches: Vec<Following> =
            journals.map(|journal| Following::new(journal, Search::default())).collect();
        let gone_or_refused = async |world: &mut Self| {
            if world.leaving.is_empty() && world.is_quiet().await {
                return Some(None);
            }
            searches.iter_mut().find_map(Following::look).map(Some)
        };
        let refused = match self.pass(LIMIT, gone_or_refused).await {
            Some(None) => return left,
            Some(Some(refused)) => format!("; {refused}"),
            None => String::new(),
        };
        left.extend(self.leaving.iter().map(|(pod, _)| format!("pod {pod}{refused}")));
        left
    }
}

/// The events of Kubernetes in a journal after so many lines, a line each.
fn events(journal: &Journal, from: &mut usize, wanted: impl Fn(&Emitted) -> bool) -> Vec<String> {
    let event = |line: &TraceLine| match &line.event {
        Event::Event(event) if wanted(event) => {
            let Emitted { kind, reason, obj, message, .. } = event;
            Some(journal.symbols().text(&format!("event  {kind} {reason} {obj}: {message}")))
        }
        _ => None,
    };
    let new = journal.since(*from);
    *from += new.len();
    new.iter().filter_map(event).collect()
}
