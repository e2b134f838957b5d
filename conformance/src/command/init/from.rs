//! A manifest from a driver's deployment files. Settings that a manifest cannot have become comments, each with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use harness::manifest::nearest;
use serde_json::Value;

use super::deployment::{self, Document, Driver, Found};

/// The text of a manifest while it is built.
#[derive(Debug, Default)]
struct Draft {
    /// The manifest's keys outside of its tables.
    head: Vec<String>,
    tables: BTreeMap<&'static str, Vec<String>>,
    notes: Vec<String>,
}

/// The prefix of parameters that the provisioner does not pass on to the driver.
const FOR_THE_CLUSTER: &str = "csi.storage.k8s.io/";

/// A manifest from the files below a directory.
pub(super) fn manifest(directory: &Path) -> std::io::Result<String> {
    let found = deployment::read(directory)?;
    let mut draft = Draft::default();
    let name = draft.take_name(&found);
    draft.take_workloads(&found);
    let is_this = |driver: &&Document| Some(driver.name()) == name;
    if let Some(driver) = found.drivers.iter().find(is_this) {
        draft.take_driver(driver);
    }
    draft.take_classes(&found);
    for class in &found.snapshot_classes {
        let parameters = text_map(&class.value["parameters"]);
        if !parameters.is_empty() {
            draft.note(format!(
                "VolumeSnapshotClass {}: parameters {parameters:?}: snapshots are taken without any",
                class.name()
            ));
        }
    }
    for file in &found.test_drivers {
        draft.note(format!(
            "{}: give it to `volproof run` with --testdriver, beside --driver-cmd or --socket",
            file.display()
        ));
    }
    if !found.definitions.is_empty() {
        let files: Vec<_> =
            found.definitions.iter().map(|file| quoted(&file.display().to_string())).collect();
        draft.table("kubernetes").push(format!("objects = [{}]", files.join(", ")));
    }
    if let Some(file) = found.repeated.first() {
        draft.note(format!(
            "files that repeat an object ({}), such as {}: each object is read once",
            found.repeated.len(),
            file.display()
        ));
    }
    draft.notes.extend(found.unread.iter().map(|file| format!("not read: {file}")));
    Ok(draft.text())
}

impl Draft {
    fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    fn table(&mut self, name: &'static str) -> &mut Vec<String> {
        self.tables.entry(name).or_default()
    }

    /// Returns the name of the driver that the manifest is about, if a file says it.
    fn take_name<'a>(&mut self, found: &'a Found) -> Option<&'a str> {
        let of_drivers = found.drivers.iter().map(Document::name);
        let of_classes = found.classes.iter().filter_map(|class| class.value["provisioner"].as_str());
        let names: BTreeSet<&str> = of_drivers.chain(of_classes).filter(|name| !name.is_empty()).collect();
        let first = names.first().copied();
        match first {
            Some(name) => self.head.push(format!("name = {}", quoted(name))),
            None => {
                self.note("name: no CSIDriver and no StorageClass says it; the driver is asked".to_owned())
            }
        }
        if names.len() > 1 {
            self.note(format!(
                "several drivers: {}; this is about the first",
                names.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        first
    }

    fn take_workloads(&mut self, found: &Found) {
        let is_node = |workload: &&Document| workload.kind() == "DaemonSet";
        // The registrar runs beside the driver on each node; other DaemonSets are about something else.
        let mut nodes: Vec<&Document> = found.workloads.iter().filter(is_node).collect();
        nodes.sort_by_key(|workload| !workload.value.to_string().contains("driver-registrar"));
        let node = nodes.into_iter().find_map(|it| Some((it, deployment::driver(it)?)));
        let controllers = found.workloads.iter().filter(|workload| !is_node(workload));
        let controller = controllers.filter_map(|it| Some((it, deployment::driver(it)?)));
        // The controller is the workload with a provisioner or an attacher.
        let controller =
            controller.into_iter().find(|(workload, _)| workload.value.to_string().contains("/csi/"));
        let Some((workload, driver)) =
            node.or_else(|| found.workloads.iter().find_map(|it| Some((it, deployment::driver(it)?))))
        else {
            self.head.push("command = [\"./my-driver\", \"--endpoint={endpoint}\"]".to_owned());
            return self
                .note("command: there is no DaemonSet, Deployment or StatefulSet with a driver".to_owned());
        };
        self.note(format!("command: {} {} in {}", workload.kind(), workload.name(), workload.file.display()));
        let account =
            workload.value["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if !account.is_empty() && found.definitions.is_empty() {
            self.note(format!(
                "the service account {account} is for the sidecars; if the driver itself is a client of Kubernetes, add the table [kubernetes]"
            ));
        }
        self.take_container("command", &driver);
        self.take_mounts(&driver);
        if let Some((workload, other)) = controller
            && (other.container["args"] != driver.container["args"]
                || other.container["image"] != driver.container["image"])
        {
            self.note(format!("controller_command: {} {} in {}; leave it out if the command above serves the controller as well",
                workload.kind(), workload.name(), workload.file.display()));
            self.take_container("controller_command", &other);
        }
    }

    fn take_container(&mut self, key: &str, driver: &Driver) {
        let container = &driver.container;
        let data = data_paths(driver);
        let mut env = self.environment(key, container);
        env.values_mut().for_each(|value| *value = in_state(std::mem::take(value), &data));
        let words = |field: &str| {
            let words = container[field].as_array().cloned().unwrap_or_default();
            let filled = words.iter().map(|word| fill(word.as_str().unwrap_or_default(), &env));
            filled.map(|word| in_state(word, &data)).collect::<Vec<_>>()
        };
        let mut command = words("command");
        if command.is_empty() {
            let image = container["image"].as_str().unwrap_or_default();
            let name =
                image.rsplit('/').next().unwrap_or_default().split([':', '@']).next().unwrap_or_default();
            self.note(format!("{key}: the image {image} says what its program is, and the deployment does not: put its path in the place of ./{name}"));
            command.push(format!("./{name}"));
        }
        command.extend(words("args"));
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        self.head.push(format!("{key} = [{}]", words.join(", ")));
        let spoken = command.join(" ");
        let unused = |(name, value): &(&String, &String)| {
            !spoken.contains(value.as_str()) || value.contains('{') && name.contains("ENDPOINT")
        };
        let lines: Vec<String> = env
            .iter()
            .filter(unused)
            .map(|(name, value)| format!("{} = {}", bare(name), quoted(value)))
            .collect();
        for line in lines {
            let table = self.table("env");
            if !table.contains(&line) {
                table.push(line);
            }
        }
        if container["securityContext"]["privileged"] == true {
            self.note(format!(
                "{key}: privileged in the cluster; here it runs as root, with all capabilities"
            ));
        }
    }

    /// The variables of a container that a manifest can set.
    fn environment(&mut self, key: &str, container: &Value) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for variable in container["env"].as_array().cloned().unwrap_or_default() {
            let name = variable["name"].as_str().unwrap_or_default().to_owned();
            let from = &variable["valueFrom"];
            let field = from["fieldRef"]["fieldPath"].as_str().unwrap_or_default();
            let value = match (variable["value"].as_str(), field) {
                (Some(value), _) => fill(value, &env),
                (None, "spec.nodeName") => "{node}".to_owned(),
                (None, "metadata.namespace") => "kube-system".to_owned(),
                (None, "metadata.name") => "driver-0".to_owned(),
                (None, "status.hostIP" | "status.podIP") => "127.0.0.1".to_owned(),
                _ => {
                    let source =
                        from.as_object().and_then(|from| from.keys().next().cloned()).unwrap_or_default();
                    self.note(format!("{key}: the variable {name} comes from a {source} of the cluster: write its value below [env]"));
                    continue;
                }
            };
            env.insert(name, value);
        }
        if container["envFrom"].is_array() {
            self.note(format!("{key}: `envFrom` takes variables from the cluster: write them below [env]"));
        }
        env
    }

    fn take_mounts(&mut self, driver: &Driver) {
        let data = data_paths(driver);
        let made: Vec<&str> =
            data.iter().map(|(_, state)| state.as_str()).filter(|path| *path != STATE).collect();
        if !made.is_empty() {
            let words: Vec<String> = ["mkdir", "-p"].into_iter().chain(made).map(quoted).collect();
            self.table("per_case").push(format!("prepare = [{}]", words.join(", ")));
        }
        let mut opened = Vec::new();
        for (inside, host) in &driver.mounts {
            let is_moved = inside.trim_end_matches('/') != host.trim_end_matches('/');
            if !is_of_node(host) && !is_of_machine(host) {
                if let Some((_, state)) = data.iter().find(|(path, _)| path == inside.trim_end_matches('/')) {
                    self.note(format!("{inside}, in the cluster {host} of the machine, is {state} here"));
                    continue;
                }
                if is_moved {
                    self.note(format!(
                        "the container has the machine's {host} at {inside}, and no argument says so: what the driver \
                         writes to {inside} is thrown away after each case; if it takes a flag for that path, give it {{state}}"
                    ));
                    continue;
                }
                opened.push(host.clone());
            } else if is_moved && !is_of_node(host) {
                self.note(format!("the container sees the machine's {host} at {inside}: here it is where it is on the machine"));
            }
        }
        if !opened.is_empty() {
            let paths: Vec<String> = opened.iter().map(|path| quoted(path)).collect();
            self.note(format!("host_paths = [{}]: what is written there is thrown away after each case, unless this opens them", paths.join(", ")));
        }
    }

    fn take_driver(&mut self, driver: &Document) {
        const KNOWN: [&str; 10] = [
            "attachRequired",
            "podInfoOnMount",
            "volumeLifecycleModes",
            "storageCapacity",
            "fsGroupPolicy",
            "tokenRequests",
            "requiresRepublish",
            "seLinuxMount",
            "nodeAllocatableUpdatePeriodSeconds",
            "serviceAccountTokenInSecrets",
        ];
        let spec = driver.value["spec"].as_object().cloned().unwrap_or_default();
        self.unknown_keys(driver, &spec, &KNOWN, "spec");
        for (key, value) in &spec {
            match key.as_str() {
                "volumeLifecycleModes" => {
                    let has = |mode: &str| {
                        value.as_array().is_some_and(|modes| modes.iter().any(|known| known == mode))
                    };
                    if has("Ephemeral") {
                        self.table("volume").push("inline = true".to_owned());
                        self.note(
                            "inline_attributes, inline_read_only: what a pod writes as `volumeAttributes` and \
                             `readOnly` of such a volume"
                                .to_owned(),
                        );
                    }
                }
                "attachRequired" => self.note(format!(
                    "attachRequired = {value}: attached if the driver reports PUBLISH_UNPUBLISH_VOLUME"
                )),
                "podInfoOnMount" | "tokenRequests" | "requiresRepublish" | "fsGroupPolicy" => {
                    self.note(format!("{key} = {value}: each case says itself what the CSIDriver has"));
                }
                _ => {}
            }
        }
    }

    fn take_classes(&mut self, found: &Found) {
        let Some((class, others)) = found.classes.split_first() else { return };
        const KNOWN: [&str; 10] = [
            "apiVersion",
            "kind",
            "metadata",
            "provisioner",
            "parameters",
            "reclaimPolicy",
            "mountOptions",
            "allowVolumeExpansion",
            "volumeBindingMode",
            "allowedTopologies",
        ];
        let fields = class.value.as_object().cloned().unwrap_or_default();
        self.unknown_keys(class, &fields, &KNOWN, "");
        let mut parameters = text_map(&class.value["parameters"]);
        if let Some(fs_type) = parameters.remove(&format!("{FOR_THE_CLUSTER}fstype")) {
            self.table("volume").push(format!("fs_types = [{}]", quoted(&fs_type)));
        }
        let of_cluster: Vec<(String, String)> = parameters
            .iter()
            .filter(|(key, _)| key.starts_with(FOR_THE_CLUSTER))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        for (key, value) in of_cluster {
            parameters.remove(&key);
            if key.ends_with("secret-name") {
                let call = key[FOR_THE_CLUSTER.len()..].trim_end_matches("-secret-name").replace('-', "_");
                let call = call.replace("provisioner", "provision");
                self.note(format!("[secrets] {call}: the secret {value} is in the cluster: write its keys into a file of `key = \"value\"` lines, and name that"));
            }
        }
        if !parameters.is_empty() {
            let pairs: Vec<String> =
                parameters.iter().map(|(key, value)| format!("{} = {}", bare(key), quoted(value))).collect();
            self.table("volume").push(format!("parameters = {{ {} }}", pairs.join(", ")));
        }
        let options: Vec<String> = class.value["mountOptions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(quoted)
            .collect();
        if !options.is_empty() {
            self.table("volume").push(format!("mount_options = [{}]", options.join(", ")));
        }
        if class.value["allowedTopologies"].is_array() {
            self.note(format!("StorageClass {}: allowedTopologies: volumes are asked for where the driver says that its node is", class.name()));
        }
        for other in others {
            self.note(format!(
                "StorageClass {} in {}: not used; {} is",
                other.name(),
                other.file.display(),
                class.name()
            ));
        }
    }

    fn unknown_keys(
        &mut self,
        document: &Document,
        fields: &serde_json::Map<String, Value>,
        known: &[&str],
        place: &str,
    ) {
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            let meant = nearest(key, known.iter().copied()).map(|meant| format!("; did you mean `{meant}`?"));
            let dot = if place.is_empty() { "" } else { "." };
            self.note(format!(
                "{} {}: unknown key `{place}{dot}{key}`{}",
                document.kind(),
                document.name(),
                meant.unwrap_or_default()
            ));
        }
    }

    fn text(self) -> String {
        let mut text = String::from(
            "# Written by `volproof init --from`. What a manifest cannot say is in the comments.\n",
        );
        for note in &self.notes {
            let note = note.replace('\n', " ");
            let _ = writeln!(text, "# - {note}");
        }
        text.push('\n');
        self.head.iter().for_each(|line| text += &format!("{line}\n"));
        for (table, lines) in &self.tables {
            let _ = writeln!(text, "\n[{table}]");
            lines.iter().for_each(|line| text += &format!("{line}\n"));
        }
        text
    }
}

/// The driver's own directory, which exists before the driver starts.
const STATE: &str = "{state}";

/// The paths in the container of the driver's data directories, if its arguments or variables name them, each with its
/// replacement: a single one is the driver's own directory, several are directories in it.
fn data_paths(driver: &Driver) -> Vec<(String, String)> {
    let spoken =
        format!("{} {} {}", driver.container["command"], driver.container["args"], driver.container["env"]);
    let of_data = driver.mounts.iter().filter(|(_, host)| !is_of_node(host) && !is_of_machine(host));
    let paths = of_data.map(|(inside, _)| inside.trim_end_matches('/').to_owned());
    let paths: Vec<String> = paths.filter(|path| path.len() > 1 && spoken.contains(path.as_str())).collect();
    let several = paths.len() > 1;
    let here = |path: &str| match several {
        true => format!("{STATE}/{}", path.rsplit('/').next().unwrap_or_default()),
        false => STATE.to_owned(),
    };
    paths.into_iter().map(|path| (path.clone(), here(&path))).collect()
}

/// A word of a command with whole data paths replaced.
fn in_state(word: String, data: &[(String, String)]) -> String {
    data.iter().fold(word, |word, (path, state)| {
        let mut parts = word.split(path.as_str());
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |done, part| {
            let ends =
                part.chars().next().is_none_or(|next| !next.is_alphanumeric() && !"-_.".contains(next));
            let begins = done
                .chars()
                .next_back()
                .is_none_or(|before| !before.is_alphanumeric() && !"-_./}".contains(before));
            format!("{done}{}{part}", if ends && begins { state } else { path })
        })
    })
}

fn is_of_node(host: &str) -> bool {
    host.starts_with("/var/lib/kubelet") || host.starts_with("/var/lib/k0s/kubelet")
}

fn is_of_machine(host: &str) -> bool {
    ["/dev", "/sys", "/proc", "/run", "/etc", "/lib/modules", "/"].iter().any(|path| {
        host.trim_end_matches('/') == path.trim_end_matches('/')
            || *path != "/" && host.starts_with(&format!("{path}/"))
    })
}

/// Replaces variables by their values, and the driver's socket and the node's name by placeholders.
fn fill(word: &str, env: &BTreeMap<String, String>) -> String {
    let filled = env.iter().fold(word.to_owned(), |word, (name, value)| {
        word.replace(&format!("$({name})"), value).replace(&format!("${{{name}}}"), value)
    });
    let ends = |rest: &str| {
        rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',')).unwrap_or(rest.len())
    };
    if let Some(at) = filled.find("unix:") {
        let end = at + ends(&filled[at..]);
        return format!("{}{{endpoint}}{}", &filled[..at], &filled[end..]);
    }
    match filled.split_once('=') {
        Some((flag, path)) if path.starts_with('/') && path.ends_with(".sock") => {
            format!("{flag}={{socket}}")
        }
        None if filled.starts_with('/') && filled.ends_with(".sock") => "{socket}".to_owned(),
        _ => filled,
    }
}

fn text_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    entries.map(|(key, value)| (key.clone(), text(value))).collect()
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// A TOML key.
fn bare(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { key.to_owned() } else { quoted(key) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use harness::manifest::Manifest;

    use super::*;

    const NODE: &str = r#"
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: block.csi.example.com}
spec: {attachRequired: true, podInfoOnMonut: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: block.csi.example.com
parameters: {tier: fast, csi.storage.k8s.io/fstype: xfs, csi.storage.k8s.io/node-stage-secret-name: admin}
mountOptions: [noatime]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node}
spec:
  template:
    spec:
      serviceAccountName: my-node
      containers:
      - {name: registrar, image: "registry.example.com/csi-node-driver-registrar:v2", args: ["--csi-address=/csi/csi.sock"]}
      - name: driver
        image: registry.example.com/example/my-driver:v1
        args: ["--endpoint=$(CSI_ENDPOINT)", "--node=$(NODE)", "--dir", "/data"]
        securityContext: {privileged: true}
        env:
        - {name: CSI_ENDPOINT, value: "unix:///csi/csi.sock"}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: LEVEL, value: "5"}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}
        volumeMounts:
        - {name: kubelet, mountPath: /var/lib/kubelet}
        - {name: data, mountPath: /data}
        - {name: cache, mountPath: /cache}
        - {name: models, mountPath: /opt/models}
      volumes:
      - {name: cache, hostPath: {path: /var/cache/my}}
      - {name: models, hostPath: {path: /opt/models}}
      - {name: kubelet, hostPath: {path: /var/lib/kubelet}}
      - {name: data, hostPath: {path: /var/my-data}}
"#;

    fn written(files: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = directory.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let text = manifest(directory.path()).unwrap();
        Manifest::parse(&text, Path::new("driver.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
        text.replace(&directory.path().display().to_string(), "<dir>")
    }

    #[test]
    fn deployment_becomes_a_manifest_with_the_rest_in_comments() {
        let text = written(&[("node.yaml", NODE), ("chart.yaml", "a: {{ .Values.x }}")]);
        for line in [
            "name = \"block.csi.example.com\"",
            "command = [\"./my-driver\", \"--endpoint={endpoint}\", \"--node={node}\", \"--dir\", \"{state}\"]",
            "[env]",
            "LEVEL = \"5\"",
            "[volume]",
            "inline = true",
            "fs_types = [\"xfs\"]",
            "parameters = { tier = \"fast\" }",
            "mount_options = [\"noatime\"]",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
        for reason in [
            "unknown key `spec.podInfoOnMonut`; did you mean `podInfoOnMount`?",
            "the variable TOKEN comes from a secretKeyRef of the cluster",
            "[secrets] node_stage: the secret admin is in the cluster",
            "/data, in the cluster /var/my-data of the machine, is {state} here",
            "host_paths = [\"/opt/models\"]",
            "the container has the machine's /var/cache/my at /cache, and no argument says so",
            "the service account my-node is for the sidecars",
            "chart.yaml: a template",
            "says what its program is",
        ] {
            assert!(
                text.lines().any(|line| line.starts_with("# - ") && line.contains(reason)),
                "{reason}\n{text}"
            );
        }
    }

    #[test]
    fn controller_of_another_program_has_its_own_command() {
        let controller = r#"
kind: Deployment
metadata: {name: controller}
spec:
  template:
    spec:
      containers:
      - {name: provisioner, image: sig-storage/csi-provisioner:v5, args: ["--csi-address=/csi/csi.sock"]}
      - {name: driver, image: "example/my-controller:v1", command: [/bin/controller], args: ["--socket=/csi/csi.sock"]}
"#;
        let text = written(&[("a.yaml", NODE), ("b.yaml", controller)]);
        assert!(text.contains("controller_command = [\"/bin/controller\", \"--socket={socket}\"]"), "{text}");
    }

    #[test]
    fn paths_of_data_are_below_the_drivers_own_directory() {
        let data = [("/csi-data-dir".to_owned(), STATE.to_owned())];
        let moved = |word: &str| in_state(word.to_owned(), &data);
        assert_eq!(moved(r#"--datadir=[{"path":"/csi-data-dir"}]"#), r#"--datadir=[{"path":"{state}"}]"#);
        assert_eq!(moved("--a=/csi-data-dir/x,/csi-data-dir"), "--a={state}/x,{state}");
        assert_eq!(moved("--a=/x/csi-data-dir /csi-data-dir-2"), "--a=/x/csi-data-dir /csi-data-dir-2");
        let several = NODE.replace("\"/data\"]", "\"/data\", \"--cache=/cache\"]");
        let text = written(&[("node.yaml", &several)]);
        assert!(text.contains(r#""--dir", "{state}/data", "--cache={state}/cache""#), "{text}");
        assert!(text.contains(r#"prepare = ["mkdir", "-p", "{state}/cache", "{state}/data"]"#), "{text}");
    }

    #[test]
    fn older_versions_copies_and_windows_are_left_out() {
        let windows = NODE
            .replace("      serviceAccountName: my-node", "      nodeSelector: {kubernetes.io/os: windows}");
        let windows =
            windows.replace("{name: node}", "{name: node-win}").replace("my-driver", "my-driver.exe");
        let old = NODE.replace("my-driver", "my-old-driver");
        let files = [
            ("a-windows.yaml", &*windows),
            ("node.yaml", NODE),
            ("example/node.yaml", &*old),
            ("v1.0.0/another.yaml", &*old.replace("block.csi", "old.csi")),
        ];
        let text = written(&files);
        assert!(text.contains("command = [\"./my-driver\", "), "{text}");
        assert!(text.contains("name = \"block.csi.example.com\""), "{text}");
        for reason in [
            "<dir>/a-windows.yaml: node-win is for Windows",
            "directories of versions (1), <dir>/v1.0.0",
            "files that repeat an object (2), such as <dir>/example/node.yaml",
        ] {
            assert!(text.contains(reason), "{reason}\n{text}");
        }
    }

    #[test]
    fn workload_with_the_registrar_is_the_drivers() {
        let other = "kind: DaemonSet\nmetadata: {name: old}\nspec: {template: {spec: {containers: \
                     [{name: a, image: example/old-provisioner}]}}}\n";
        let text = written(&[("a.yaml", other), ("csi/node.yaml", NODE)]);
        assert!(text.contains("command = [\"./my-driver\", "), "{text}");
    }

    #[test]
    fn only_the_driver_of_the_name_is_described() {
        let text = written(&[("a.yaml", NODE), ("b.yaml", &NODE.replace("block.csi", "zonal.csi"))]);
        assert!(text.contains("several drivers: block.csi.example.com, zonal.csi.example.com"), "{text}");
    }

    #[test]
    fn directory_without_a_workload_is_noted() {
        let text = written(&[("a.yaml", "kind: Namespace\nmetadata: {name: a}\n")]);
        assert!(text.contains("# - command: there is no DaemonSet"), "{text}");
    }
}
