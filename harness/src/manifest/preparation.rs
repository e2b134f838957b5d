//! Commands of the manifest's author that make what a driver needs, and undo it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::command::PLACEHOLDERS;
use super::{Manifest, ManifestError, command};
use crate::Layout;

/// A command before the driver starts, and one after it has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<String>,
    /// Also run when `prepare` has failed, or was killed half-way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleanup: Vec<String>,
}

impl Preparation {
    pub fn is_empty(&self) -> bool {
        self.prepare.is_empty() && self.cleanup.is_empty()
    }

    fn commands(&self) -> impl Iterator<Item = &Vec<String>> {
        [&self.prepare, &self.cleanup].into_iter()
    }

    pub(super) fn resolve(&mut self, directory: &Path) {
        for command in [&mut self.prepare, &mut self.cleanup] {
            command::resolve(command, directory);
        }
    }
}

/// The values of the placeholders, for the processes of one driver.
#[derive(Debug, Clone)]
pub struct Placeholders {
    values: [(&'static str, String); PLACEHOLDERS.len()],
}

impl Placeholders {
    /// Those of the driver in this layout, of its controller if that is another process.
    pub fn new(layout: &Layout, node: &str, is_controller: bool) -> Self {
        let socket = match is_controller {
            true => layout.controller_socket(),
            false => layout.driver_socket(),
        };
        let socket = socket.to_string_lossy().into_owned();
        let values = [
            ("endpoint", format!("unix://{socket}")),
            ("socket", socket),
            ("node", node.to_owned()),
            ("state", layout.driver_state().to_string_lossy().into_owned()),
            ("kubeconfig", layout.kubeconfig().to_string_lossy().into_owned()),
            // The driver sees its root as this.
            ("root", "/".to_owned()),
        ];
        Self { values }
    }

    /// The same for a command beside the driver, which sees the driver's root at this path.
    #[must_use]
    pub fn beside(mut self, root: Option<&Path>) -> Self {
        let root = root.unwrap_or(Path::new("/")).to_string_lossy();
        self.values
            .iter_mut()
            .filter(|(name, _)| *name == "root")
            .for_each(|(_, value)| *value = root.clone().into());
        self
    }

    /// A text with its placeholders replaced.
    pub fn fill(&self, text: &str) -> String {
        self.values
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    pub fn fill_command(&self, command: &[String]) -> Vec<String> {
        command.iter().map(|word| self.fill(word)).collect()
    }

    pub fn fill_values(&self, values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        values.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect()
    }
}

impl Manifest {
    /// Refuses unknown placeholders in everything that may have some, and any in what runs where none has a value.
    pub(super) fn check_placeholders(&self) -> Result<(), ManifestError> {
        let commands = [&self.command, &self.controller_command].into_iter().chain(self.per_case.commands());
        let words =
            commands.flatten().chain(self.env.values()).chain(self.files.keys()).chain(&self.directory);
        if let Some((name, meant)) = command::unknown_placeholder(words.map(String::as_str)) {
            return Err(ManifestError::UnknownPlaceholder { name: name.to_owned(), meant });
        }
        let of_run = self.per_run.commands().flatten();
        if let Some(name) = command::names(of_run.map(String::as_str)).next() {
            return Err(ManifestError::PlaceholderOfRun { name: name.to_owned() });
        }
        match self.files.keys().find(|path| !is_below_state(path)) {
            Some(path) => Err(ManifestError::FileElsewhere { file: path.clone() }),
            None => Ok(()),
        }
    }

    /// Whether the driver is given the API of a cluster.
    pub fn wants_kubernetes(&self) -> bool {
        let commands = [&self.command, &self.controller_command].into_iter().chain(self.per_case.commands());
        let mut words = commands.flatten().chain(self.env.values()).chain(self.files.values());
        self.kubernetes.is_some() || words.any(|word| word.contains("{kubeconfig}"))
    }

    /// The environment of the commands that run once: variables whose value depends on a case are not in it.
    pub fn per_run_env(&self) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        env.retain(|_, value| command::names([value.as_str()]).next().is_none());
        env
    }
}

/// Whether a path is in the driver's own directory, and cannot leave it.
pub(super) fn is_below_state(path: &str) -> bool {
    path.strip_prefix("{state}/").is_some_and(|below| {
        !below.is_empty()
            && Path::new(below).components().all(|part| matches!(part, std::path::Component::Normal(_)))
    })
}
