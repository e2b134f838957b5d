//! The containers of played pods: started when a pod has its volumes, as a node does it, and ended before these go.
//! There are no images; a program that is to run inside is the machine's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use api::{ContainerKind, Pod};
use harness::container::{Container, TERMINAL, bring_programs};
use harness::guard::Guard;
use harness::node::Wanted;
use harness::sandbox::Sandbox;
use runner::message::Inside;
use testbed::failure::chain;
use testbed::limits::DeviceGroups;
use testbed::message::Orders;

use super::manifest;
use super::world::{NAMESPACE, World};

/// The running containers, by pod.
#[derive(Debug)]
pub(super) struct Containers {
    running: BTreeMap<String, BTreeMap<String, Container>>,
    /// Pods whose containers could not all be started.
    refused: BTreeSet<String>,
    groups: DeviceGroups,
    log: PathBuf,
    roots: PathBuf,
    has_terminal: bool,
}

impl Containers {
    pub(super) fn new(orders: &Orders, sandbox: &Sandbox, has_terminal: bool) -> Self {
        Self {
            running: BTreeMap::new(),
            refused: BTreeSet::new(),
            groups: DeviceGroups::of(orders, sandbox),
            log: orders.directory.join("container.log"),
            roots: sandbox.layout().state().join("containers"),
            has_terminal,
        }
    }

    /// Whether those of a pod were started, or were to be.
    pub(super) fn has(&self, pod: &str) -> bool {
        self.running.contains_key(pod) || self.refused.contains(pod)
    }

    /// Starts the containers of a pod in their order; those that run to their end before the others are ended. Returns
    /// what each is given, a line each, or why one cannot be started.
    pub(super) async fn start(&mut self, world: &World, pod: &str) -> Result<Vec<String>, String> {
        let Some(object) = world.api_server.get::<Pod>(NAMESPACE, pod) else { return Ok(vec![]) };
        let mut given = Vec::new();
        for container in &object.containers {
            let name = &container.name;
            let (mut started, lines) = match self.start_one(world, pod, name).await {
                Ok(started) => started,
                Err(why) => {
                    self.refused.insert(pod.to_owned());
                    return Err(format!("the container {pod}/{name} cannot start: {why}"));
                }
            };
            given.extend(lines.into_iter().map(|line| format!("  {pod}/{name}  {line}")));
            match container.kind {
                ContainerKind::Init => drop(started.take()),
                _ => {
                    let running = self.running.entry(pod.to_owned()).or_default();
                    running.extend(started.map(|started| (name.clone(), started)));
                }
            }
        }
        self.running.entry(pod.to_owned()).or_default();
        Ok(given)
    }

    async fn start_one(
        &self,
        world: &World,
        pod: &str,
        name: &str,
    ) -> Result<(Option<Container>, Vec<String>), String> {
        let rootfs = self.roots.join(pod).join(name);
        std::fs::create_dir_all(&rootfs).map_err(|error| error.to_string())?;
        let wanted = Wanted { pod: pod.to_owned(), container: name.to_owned(), attempt: 0, rootfs };
        let spec = world.node_of(pod).configure(wanted).await.map_err(|error| chain(&error).join(": "))?;
        let group = self.groups.make(&spec);
        let mut with_programs = spec.clone();
        let terminal: &[i32] = if self.has_terminal { &TERMINAL } else { &[] };
        if self.has_terminal {
            bring_programs(&mut with_programs).map_err(|error| error.to_string())?;
        }
        let started = Container::start_at(&with_programs, &self.log, group, terminal).await;
        let mut container = started.map_err(|error| chain(&error).join(": "))?;
        // Its mounts in Bidirectional volumes are no strays.
        world.journal_of(pod).with_actors(|actors| actors.harness.insert(container.group()));
        container.show_only(&spec);
        let view = container.look().await.map_err(|error| chain(&error).join(": "))?;
        Ok((Some(container), view.given(world.journal_of(pod).symbols())))
    }

    /// The container that is meant.
    pub(super) fn find(&mut self, world: &World, inside: &Inside) -> Result<&mut Container, String> {
        let first = || world.scenario.pods.first().map(|pod| manifest::name(pod).to_owned());
        let pod = inside.pod.clone().or_else(first).unwrap_or_default();
        let containers = self.running.get_mut(&pod).ok_or_else(|| format!("no pod `{pod}` runs"))?;
        let object = world.api_server.get::<Pod>(NAMESPACE, &pod);
        let mut names = object.iter().flat_map(|pod| &pod.containers).map(|container| &container.name);
        let first = names.find(|name| containers.contains_key(*name)).cloned();
        let name = inside.container.clone().or(first).unwrap_or_default();
        containers.get_mut(&name).ok_or_else(|| format!("no container `{name}` of the pod `{pod}` runs"))
    }

    /// Ends those of a pod.
    pub(super) fn end(&mut self, pod: &str) -> Vec<String> {
        self.refused.remove(pod);
        let ended = self.running.remove(pod).into_iter().flatten();
        let ended = ended.filter_map(|(name, container)| Some((name, container.close().err()?)));
        ended.map(|(name, error)| format!("container {pod}/{name}: {}", chain(&error).join(": "))).collect()
    }
}
