//! Hand-made traces for the tests of rules, written as short lines.
//!
//! ```text
//! stage v1                     a call and its answer OK; `stage v1 Internal` another answer
//! publish v1 a begins          only the start; `publish v1 a ends` only the end
//! mount target:v1/a ro         the kernel shows a mount, here with an option
//! mkdir parent:v1/a            the manager announced an effect, and the kernel shows it
//! effect umount target:v1/a    the same for an effect whose word alone is a kernel event
//! state v1/a VolumeMounted     the actual state of a volume or of a pod's volume; `-` removes it
//! wants v1/a yes               the desired state, likewise
//! step add_pod uid-a           a pod event or a step of the case, in the words of version 1
//! recovered pods               the manager knows its pods from now on, or its `node`, or the `volumes` on disk
//! in-use v1                    the node writes `volumesInUse` of its status
//! detach v1                    ControllerUnpublishVolume
//! starts M {}                  any call that is not answered, with its request
//! directly M Internal details  the end of a call by a case itself, whose status has details; without the word, none
//! calls M {} {} OK             any call, with request, answer and code, and then the fault that the proxy injected
//! ```
//!
//! Volumes whose name begins with `b` are block volumes, and `empty:cache/a` is an emptyDir of pod `a`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Judge, Rest, Rule, Violation, Witness};
use crate::event::*;

const ROOT: &str = "/kl";
const CSI: &str = "/kl/plugins/kubernetes.io/csi";

/// Asserts that a trace keeps a rule and gives it something to judge. `pods` are still wanted at the end.
#[track_caller]
pub(crate) fn keeps(rule: &'static Rule, script: &str, pods: &[&str]) {
    let (found, tried) = judged(rule, script, pods);
    assert_eq!(found, [], "{}", rule.id);
    assert!(tried, "{} has nothing to judge", rule.id);
}

/// Asserts that a rule has nothing to judge in a trace.
#[track_caller]
pub(crate) fn passes_over(rule: &'static Rule, script: &str, pods: &[&str]) {
    let (found, tried) = judged(rule, script, pods);
    assert_eq!((found, tried), (Vec::new(), false), "{}", rule.id);
}

/// Asserts that a rule finds exactly one violation in a trace, with this cause.
#[track_caller]
pub(crate) fn breaks(rule: &'static Rule, cause: &str, script: &str, pods: &[&str]) {
    let (found, _) = judged(rule, script, pods);
    let causes: Vec<&str> = found.iter().map(|violation| violation.cause).collect();
    assert_eq!(causes, [cause], "{}: {found:#?}", rule.id);
}

/// The violations that a rule finds, and whether it had anything to judge.
fn judged(rule: &'static Rule, script: &str, pods: &[&str]) -> (Vec<Violation>, bool) {
    let mut judge = Judge::new([rule], &Witness::SIMULATED);
    let mut found: Vec<Violation> = trace(script).iter().flat_map(|line| judge.event(line)).collect();
    found.extend(judge.rest(&Rest { pods: pods.iter().map(|pod| uid(pod)).collect() }));
    (found, judge.tried().contains(rule.id))
}

pub(crate) fn trace(script: &str) -> Vec<TraceLine> {
    let mut writer = Writer::default();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        writer.line(line);
    }
    writer.trace
}

#[derive(Default)]
struct Writer {
    trace: Vec<TraceLine>,
    calls: BTreeMap<String, u64>,
    states: BTreeMap<String, String>,
    t_ms: f64,
}

impl Writer {
    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["at", ms] => self.t_ms = ms.parse().expect("milliseconds"),
            [verb @ ("stage" | "unstage"), volume, rest @ ..] => self.call(verb, volume, "", rest),
            [verb @ ("publish" | "unpublish" | "expand"), volume, pod, rest @ ..] => {
                self.call(verb, volume, pod, rest);
            }
            ["detach", volume, rest @ ..] => self.call("detach", volume, "", rest),
            ["capabilities", listed @ ..] => self.capabilities(listed),
            ["calls", method, req, resp, code, injected @ ..] => {
                let json = |text: &str| serde_json::from_str(text).expect("JSON without blanks");
                self.whole_call(method, json(req), json(resp), code, injected.join(" "));
            }
            ["directly", method, code, details @ ..] => {
                let id = self.trace.len() as u64 + 1;
                let answer = DirectAnswer {
                    method: (*method).to_owned(),
                    code: (*code).to_owned(),
                    message: "no".to_owned(),
                    details: *details == ["details"],
                    resp: Value::Null,
                };
                let (volume, paths) = (String::new(), vec![]);
                let call = DirectCall { id, edge: Edge::End, volume, paths, answer: Some(answer) };
                self.push(Event::DirectCall(call));
            }
            ["starts", method, req] => {
                let (id, method) = (self.trace.len() as u64 + 1, (*method).to_owned());
                let req = serde_json::from_str(req).expect("JSON without blanks");
                self.push(Event::RpcStart(RpcStart { id, method, req, deadline_s: None }));
            }
            ["mount", at, opts @ ..] => self.push(Event::MountAdd(mount(&path(at), opts))),
            ["umount", at] => self.unmounted(at, Actor::Unknown),
            // By the machine, which starts anew.
            ["loses", at] => self.unmounted(at, Actor::Harness),
            ["state", key, to] => self.state(World::Actual, key, to),
            ["wants", key, to] => self.state(World::Desired, key, to),
            ["op", edge, name, key, error @ ..] => self.operation(edge, name, key, error),
            ["in-use", volumes @ ..] => {
                let listed: Vec<String> = volumes.iter().map(|volume| unique(volume)).collect();
                self.api("update", "Node", "node-1", "node", json!({"status": {"volumesInUse": listed}}));
            }
            ["api", verb, kind, object, by] => self.api(verb, kind, object, by, json!({})),
            ["api", verb, kind, object, by, body @ ..] => {
                self.api(verb, kind, object, by, serde_json::from_str(&body.join(" ")).expect("JSON"));
            }
            ["wait", what, pod, error @ ..] => self.push(Event::Wait(WaitReturned {
                what: word(what),
                pod: if *pod == "web" { "web".into() } else { uid(pod) },
                err: error.join(" "),
            })),
            ["recovered", what] => self.push(Event::Recovered(Recovered { what: word(what) })),
            ["event", reason, message @ ..] => self.push(Event::Event(Emitted {
                obj: "pod/a".into(),
                kind: "Warning".into(),
                reason: (*reason).into(),
                message: message.join(" "),
                by: Client::Node,
            })),
            ["step", action, on @ ..] => {
                let on: Vec<String> = on.iter().map(|word| path(word)).collect();
                let step = Step { action: (*action).into(), on: on.join(" "), at: None };
                match step.meant() {
                    Event::Case(_) => panic!("no rule takes this step into account: {line}"),
                    meant => self.push(meant),
                }
            }
            [who @ ("node" | "driver"), edge] => self.push(Event::Process(ProcessEdge {
                who: word(who),
                edge: word(edge),
                status: None,
                root: None,
                hides_driver: false,
            })),
            ["effect", effect, at, source @ ..] | [effect, at, source @ ..] => {
                self.push(Event::Effect(Effect {
                    effect: word(effect),
                    path: path(at),
                    source: source.first().map(|source| (*source).to_owned()),
                    fields: BTreeMap::new(),
                    confirmed: true,
                }))
            }
            _ => panic!("no such line: {line}"),
        }
    }

    fn push(&mut self, event: Event) {
        let seq = self.trace.len() as u64 + 1;
        self.trace.push(TraceLine { seq, t_ms: self.t_ms, event });
    }

    fn call(&mut self, verb: &str, volume: &str, pod: &str, rest: &[&str]) {
        let key = format!("{verb} {volume} {pod}");
        let (begins, ends, rest) = match rest {
            ["begins", rest @ ..] => (true, false, rest),
            ["ends", rest @ ..] => (false, true, rest),
            rest => (true, true, rest),
        };
        let method = match verb {
            "expand" => "NodeExpandVolume".to_owned(),
            "detach" => "ControllerUnpublishVolume".to_owned(),
            verb => format!("Node{}{}Volume", verb[..1].to_uppercase(), &verb[1..]),
        };
        // The words that are JSON change the request; the remaining word is the code of the answer.
        let (changes, code): (Vec<&str>, Vec<&str>) = rest.iter().partition(|word| word.starts_with('{'));
        if begins {
            let id = self.trace.len() as u64 + 1;
            self.calls.insert(key.clone(), id);
            let mut req = request(verb, volume, pod);
            for change in changes {
                let change: Value = serde_json::from_str(change).expect("JSON");
                req.as_object_mut()
                    .expect("an object")
                    .extend(change.as_object().expect("an object").clone());
            }
            self.push(Event::RpcStart(RpcStart { id, method: method.clone(), req, deadline_s: None }));
        }
        if ends {
            let id = self.calls.remove(&key).expect("the call has begun");
            let code = code.first().map_or("OK", |code| *code).to_owned();
            self.push(Event::RpcEnd(RpcEnd {
                id,
                method,
                code,
                message: String::new(),
                dur_ms: 0.0,
                resp: json!({}),
                injected: None,
                abandoned: false,
                unreadable: None,
            }));
        }
    }

    fn capabilities(&mut self, listed: &[&str]) {
        let capabilities: Vec<Value> = listed.iter().map(|name| json!({"rpc": {"type": name}})).collect();
        let resp = json!({"capabilities": capabilities});
        self.whole_call("NodeGetCapabilities", json!({}), resp, "OK", String::new());
    }

    fn whole_call(&mut self, method: &str, req: Value, resp: Value, code: &str, injected: String) {
        let id = self.trace.len() as u64 + 1;
        self.push(Event::RpcStart(RpcStart { id, method: method.to_owned(), req, deadline_s: None }));
        self.push(Event::RpcEnd(RpcEnd {
            id,
            method: method.to_owned(),
            code: code.to_owned(),
            message: String::new(),
            dur_ms: 0.0,
            resp,
            injected: (!injected.is_empty()).then_some(injected),
            abandoned: false,
            unreadable: None,
        }));
    }

    fn unmounted(&mut self, at: &str, by: Actor) {
        let seen_by = "fanotify".into();
        self.push(Event::MountDel(MountDel { target: path(at), id: 0, by, seen_by, unnamed: false }));
    }

    fn state(&mut self, world: World, key: &str, to: &str) {
        let key = match key.split_once('/') {
            Some((volume, pod)) => format!("pod {} {}", uid(pod), unique_in(volume, pod)),
            None => format!("volume {}", unique(key)),
        };
        let to = if to == "-" { String::new() } else { to.to_owned() };
        let from = self.states.insert(format!("{world} {key}"), to.clone()).unwrap_or_default();
        self.push(Event::State(StateChange { world, key, from, to }));
    }

    fn operation(&mut self, edge: &str, name: &str, key: &str, error: &[&str]) {
        let (volume, pod) = key.split_once('/').unwrap_or((key, ""));
        self.push(Event::Operation(OperationEdge {
            name: word(name),
            volume: unique_in(volume, pod),
            pod: if pod.is_empty() { String::new() } else { uid(pod) },
            edge: word(edge),
            error: (!error.is_empty()).then(|| error.join(" ")),
        }));
    }

    fn api(&mut self, verb: &str, kind: &str, object: &str, by: &str, body: Value) {
        self.push(Event::Api(ApiChange {
            verb: word(verb),
            kind: word(kind),
            object: object.into(),
            by: word(by),
            body,
        }));
    }
}

fn word<T: std::str::FromStr<Err = UnknownWord>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn uid(pod: &str) -> String {
    format!("uid-{pod}")
}

fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/d.example.com^{volume}")
}

/// The unique name of a pod's volume: `empty:<name>` is an emptyDir of the pod itself.
fn unique_in(volume: &str, pod: &str) -> String {
    match volume.strip_prefix("empty:") {
        Some(name) => format!("kubernetes.io/empty-dir/{}-{name}", uid(pod)),
        None => unique(volume),
    }
}

fn is_block(volume: &str) -> bool {
    volume.starts_with('b')
}

fn request(verb: &str, volume: &str, pod: &str) -> Value {
    let mut request = json!({"volumeId": volume});
    let fields = request.as_object_mut().expect("an object");
    let staging = json!(path(&format!("staging:{volume}")));
    let target = json!(path(&format!("target:{volume}/{pod}")));
    match verb {
        "stage" | "unstage" => _ = fields.insert("stagingTargetPath".into(), staging),
        "detach" => {}
        "expand" => _ = fields.insert("volumePath".into(), target),
        "unpublish" => _ = fields.insert("targetPath".into(), target),
        _ => {
            fields.insert("stagingTargetPath".into(), staging);
            fields.insert("targetPath".into(), target);
        }
    }
    if matches!(verb, "stage" | "publish") {
        let kind = if is_block(volume) { json!({"block": {}}) } else { json!({"mount": {"fsType": "ext4"}}) };
        let mut capability = json!({"accessMode": {"mode": "SINGLE_NODE_WRITER"}});
        capability.as_object_mut().expect("an object").extend(kind.as_object().expect("an object").clone());
        fields.insert("volumeCapability".into(), capability);
    }
    request
}

fn mount(target: &str, opts: &[&str]) -> Mount {
    let value = |name: &str| opts.iter().find_map(|opt| opt.strip_prefix(name)).map(str::to_owned);
    let plain: Vec<&str> = opts.iter().filter(|opt| !opt.contains('=')).copied().collect();
    Mount {
        target: target.into(),
        root: value("root=").unwrap_or_else(|| "/".into()),
        fstype: value("fstype=").unwrap_or_else(|| "ext4".into()),
        source: value("source=").unwrap_or_else(|| "/dev/loop0".into()),
        opts: if plain.is_empty() { "rw,relatime".into() } else { plain.join(",") },
        super_opts: "rw".into(),
        dev: value("dev=").unwrap_or_else(|| "7:0".into()),
        rdev: value("rdev="),
        propagation: String::new(),
        id: 0,
        by: Actor::Driver,
        seen_by: "fanotify".into(),
        unnamed: false,
    }
}

/// The path of a word such as `target:v1/a`; a path is its own word.
pub(crate) fn path(word: &str) -> String {
    let Some((kind, key)) = word.split_once(':') else { return word.to_owned() };
    let (volume, pod) = key.split_once('/').map_or((key, String::new()), |(volume, pod)| (volume, uid(pod)));
    let volumes = format!("{ROOT}/pods/{pod}/volumes/kubernetes.io~csi/pv-{volume}");
    match (kind, is_block(volume)) {
        ("target", false) => format!("{volumes}/mount"),
        ("target", true) => format!("{CSI}/volumeDevices/publish/pv-{volume}/{pod}"),
        ("parent", false) => volumes,
        ("parent", true) => format!("{CSI}/volumeDevices/publish/pv-{volume}"),
        ("staging", false) => format!("{CSI}/d.example.com/{volume}/globalmount"),
        ("staging", true) => format!("{CSI}/volumeDevices/staging/pv-{volume}"),
        ("data", true) => format!("{CSI}/volumeDevices/pv-{volume}/data/vol_data.json"),
        ("data", false) if pod.is_empty() => format!("{CSI}/d.example.com/{volume}/vol_data.json"),
        ("data", false) => format!("{volumes}/vol_data.json"),
        ("map", _) => format!("{CSI}/volumeDevices/pv-{volume}/dev/{pod}"),
        ("link", _) => format!("{ROOT}/pods/{pod}/volumeDevices/kubernetes.io~csi/pv-{volume}"),
        ("subpath", _) => format!("{ROOT}/pods/{pod}/volume-subpaths/pv-{volume}/c/0"),
        (kind, _) => panic!("no such path: {kind}"),
    }
}
