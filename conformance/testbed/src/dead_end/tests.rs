//! Dead ends in traces made up for it. Touches nothing.

use contracts::event::{Edge, Lifecycle, OperationName, ProcessEdge, Role, Step, Unreadable};
use serde_json::json;

use super::*;

const PUBLISH: &str = "NodePublishVolume";

/// The code of an answer that cannot be read.
const GARBAGE: &str = "Internal (unreadable)";

/// Plays a trace and looks for a dead end in it.
#[derive(Default)]
struct Trace {
    search: Search,
    calls: u64,
    now: f64,
}

impl Trace {
    fn knowing(key: &str) -> Self {
        Self { search: Search::new([key.to_owned()].into()), ..Self::default() }
    }

    fn add(&mut self, event: Event) -> Option<DeadEnd> {
        self.search.read(&[TraceLine { seq: 0, t_ms: self.now, event }])
    }

    fn call(&mut self, method: &str, code: &str, injected: Option<&str>) -> Option<DeadEnd> {
        let unreadable = (code == GARBAGE).then_some(Unreadable::NoMessage);
        self.calls += 1;
        let (id, method) = (self.calls, method.to_owned());
        let req = json!({ "volumeId": "v" });
        self.add(Event::RpcStart(RpcStart { id, method: method.clone(), req, deadline_s: None }));
        let (code, injected) = (code.to_owned(), injected.map(str::to_owned));
        let message = if code == "OK" { String::new() } else { format!("volume pv-{id} is there") };
        self.add(Event::RpcEnd(RpcEnd {
            id,
            method,
            code,
            message,
            dur_ms: 1.0,
            resp: json!(null),
            injected,
            abandoned: false,
            unreadable,
        }))
    }

    /// One try of the manager: an operation with one call in it, some time after the last.
    fn tries(&mut self, code: &str, injected: Option<&str>, error: Option<&str>) -> Option<DeadEnd> {
        self.now += 600.0;
        self.add(edge(Edge::Start, None));
        self.call(PUBLISH, code, injected);
        self.add(edge(Edge::End, error))
    }

    /// One try of the manager that fails before it makes a call.
    fn fails_without_a_call(&mut self, error: &str) -> Option<DeadEnd> {
        self.now += 600.0;
        self.add(edge(Edge::Start, None));
        self.add(edge(Edge::End, Some(error)))
    }

    fn fails(&mut self, code: &str) -> Option<DeadEnd> {
        self.tries(code, None, Some("rpc error"))
    }
}

/// The begin or the end of a mount.
fn edge(edge: Edge, error: Option<&str>) -> Event {
    let (name, volume) = (OperationName::Mount, "kubernetes.io/csi/d^v".to_owned());
    let (pod, error) = ("uid-web".to_owned(), error.map(str::to_owned));
    Event::Operation(OperationEdge { name, volume, pod, edge, error })
}

#[test]
fn error_of_the_node_that_no_further_try_mends_ends_a_wait() {
    let affinity = "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    let mounted = "the device mount path `/g` is still mounted by other references [\"/t\"]";
    let said = "the node unstages no volume that is still mounted at a target";
    let link = "path `/v` exists but is not a directory";
    for (error, said) in [(affinity, affinity), (link, link), (mounted, said)] {
        let mut trace = Trace::default();
        let end = (0..3).find_map(|_| trace.fails_without_a_call(error)).expect("three equal ones");
        assert_eq!(end.to_string(), format!("ended early: the node fails each time (3 tries): {said}"));
        assert_eq!(end.explain("No pod")[0], format!("No pod: {said}."));
    }
    let mut trace = Trace::default();
    assert_eq!((0..9).find_map(|_| trace.fails_without_a_call("secret \"keys\" not found")), None);
}

#[test]
fn third_equal_final_answer_ends_a_wait() {
    let mut trace = Trace::default();
    assert_eq!(trace.fails("AlreadyExists"), None);
    assert_eq!(trace.fails("AlreadyExists"), None);
    let end = trace.fails("AlreadyExists").expect("three equal ones");
    assert_eq!(
        end.to_string(),
        "ended early: NodePublishVolume answers ALREADY_EXISTS each time (3 calls): \"volume pv-3 is there\""
    );
}

#[test]
fn only_calls_that_undo_others_are_not_undone() {
    let refused = |method: &str, code: &str| {
        let (method, code) = (method.to_owned(), code.to_owned());
        let end = DeadEnd { method, code, message: "no".to_owned(), ..DeadEnd::default() };
        end.not_undone().map(|refused| refused.cause)
    };
    let cause = "NodeUnstageVolume answers INTERNAL each time: \"no\".";
    assert_eq!(refused("NodeUnstageVolume", "INTERNAL").as_deref(), Some(cause));
    assert_eq!(refused("NodeStageVolume", "INTERNAL"), None);
    let unreadable =
        DeadEnd { method: "NodeUnstageVolume".to_owned(), is_unreadable: true, ..DeadEnd::default() };
    assert_eq!(unreadable.not_undone(), None);
    // An earlier call may have undone it.
    assert_eq!(refused("NodeUnpublishVolume", "NOT_FOUND"), None);
    assert_eq!(refused("NodeUnpublishVolume", "OK"), None);
}

#[test]
fn second_answer_that_cannot_be_read_ends_a_wait() {
    let mut trace = Trace::default();
    assert_eq!(trace.fails(GARBAGE), None);
    assert!(trace.fails(GARBAGE).is_some());
}

#[test]
fn ok_after_which_nothing_is_there_counts_like_an_error() {
    let mut trace = Trace::default();
    let end = (0..3).find_map(|_| trace.tries("OK", None, Some("no such file: `x`"))).expect("three");
    assert_eq!(
        end.to_string(),
        "ended early: NodePublishVolume answers OK each time (3 calls), and then: no such file: `x`"
    );
}

#[test]
fn open_codes_and_answers_of_the_proxy_are_waited_out() {
    for code in ["Aborted", "Unavailable", "DeadlineExceeded", "ResourceExhausted", "Canceled"] {
        let mut trace = Trace::default();
        assert!((0..9).all(|_| trace.fails(code).is_none()), "{code}");
    }
    let mut trace = Trace::default();
    let injected = Some("code=Internal delay=0 hang=false");
    assert!((0..9).all(|_| trace.tries("Internal", injected, Some("rpc error")).is_none()));
}

#[test]
fn another_answer_in_between_begins_the_count_anew() {
    for other in ["Aborted", "NotFound"] {
        let mut trace = Trace::default();
        for _ in 0..4 {
            assert_eq!(trace.fails("Internal"), None);
            assert_eq!(trace.fails("Internal"), None);
            assert_eq!(trace.fails(other), None);
        }
    }
    let mut trace = Trace::default();
    for _ in 0..4 {
        assert_eq!(trace.fails("Internal"), None);
        assert_eq!(trace.fails("Internal"), None);
        assert_eq!(trace.tries("OK", None, None), None);
    }
}

#[test]
fn steps_of_a_case_begin_the_count_anew() {
    let step = Event::Case(Step { action: "disk.is(Sound)".to_owned(), on: String::new(), at: None });
    let (who, edge) = (Role::Driver, Lifecycle::Start);
    let start = Event::Process(ProcessEdge { who, edge, status: None, root: None, hides_driver: false });
    for cure in [step, start] {
        let mut trace = Trace::default();
        for _ in 0..4 {
            assert_eq!(trace.fails("Internal"), None);
            assert_eq!(trace.fails("Internal"), None);
            assert_eq!(trace.add(cure.clone()), None);
        }
    }
}

#[test]
fn failures_without_the_driver_are_waited_for() {
    let mut trace = Trace::default();
    for _ in 0..9 {
        trace.now += 600.0;
        let (name, volume, pod) = (OperationName::Mount, "kubernetes.io/csi/d^v".to_owned(), String::new());
        let (edge, error) = (Edge::End, Some("no secret".to_owned()));
        assert_eq!(trace.add(Event::Operation(OperationEdge { name, volume, pod, edge, error })), None);
    }
}

#[test]
fn attacher_that_tries_again_at_once_is_given_a_second() {
    let mut trace = Trace::default();
    let mut attach = |now: f64| {
        trace.now = now;
        trace.call("ControllerPublishVolume", "FailedPrecondition", None)
    };
    assert!((0..9).all(|number| attach(f64::from(number)).is_none()));
    assert!(attach(1500.0).is_some());
}

#[test]
fn dead_end_of_earlier_cases_is_believed_at_once() {
    let mut first = Trace::default();
    let key = (0..3).find_map(|_| first.fails("Internal")).expect("three").key;
    let mut later = Trace::knowing(&key);
    let end = later.fails("Internal").expect("it is known");
    assert!(end.to_string().contains("as earlier in this run"), "{end}");
    assert_eq!(Trace::knowing(&key).fails("NotFound"), None);
}

/// The manager knows an inline volume by its pod and its name, and no operation names its handle.
#[test]
fn refused_inline_volume_is_a_dead_end() {
    let mut trace = Trace::default();
    let mut found = None;
    for _ in 0..ENOUGH {
        let edge = |edge: Edge| {
            let (name, volume) = (OperationName::Mount, "kubernetes.io/csi/scratch".to_owned());
            let error = (edge == Edge::End).then(|| "it was refused".to_owned());
            Event::Operation(OperationEdge { name, volume, pod: "uid-web".to_owned(), edge, error })
        };
        trace.now += 600.0;
        trace.calls += 1;
        trace.add(edge(Edge::Start));
        let req = json!({
            "volumeId": "csi-1",
            "targetPath": "/kl/pods/uid-web/volumes/kubernetes.io~csi/scratch/mount",
            "volumeContext": { "csi.storage.k8s.io/ephemeral": "true" },
        });
        let (id, method) = (trace.calls, PUBLISH.to_owned());
        trace.add(Event::RpcStart(RpcStart { id, method: method.clone(), req, deadline_s: None }));
        let (code, message, resp) = ("Internal".to_owned(), "a file lies there".to_owned(), json!(null));
        let (dur_ms, injected, abandoned, unreadable) = (1.0, None, false, None);
        let end = RpcEnd { id, method, code, message, dur_ms, resp, injected, abandoned, unreadable };
        trace.add(Event::RpcEnd(end));
        found = trace.add(edge(Edge::End));
    }
    assert!(found.is_some());
}

#[test]
fn mount_that_fails_alike_without_a_call_is_not_the_loads() {
    let ends = |name, error: Option<&str>| {
        let (volume, pod) = ("kubernetes.io/csi/d^v".to_owned(), "uid-web".to_owned());
        let error = error.map(str::to_owned);
        Event::Operation(OperationEdge { name, volume, pod, edge: Edge::End, error })
    };
    let fails = |events: &[Event]| {
        let line = |event: &Event| TraceLine { seq: 0, t_ms: 0.0, event: event.clone() };
        fails_by_itself(&events.iter().map(line).collect::<Vec<_>>())
    };
    let affinity = ends(OperationName::Mount, Some("no matching NodeSelectorTerms"));
    let other = ends(OperationName::Mount, Some("secret not found"));
    let waits = ends(OperationName::Verify, Some("not attached"));
    let call = Event::RpcStart(RpcStart {
        id: 1,
        method: "ControllerPublishVolume".to_owned(),
        req: json!({}),
        deadline_s: None,
    });
    assert!(fails(&vec![affinity.clone(); 3]));
    assert!(!fails(&vec![affinity.clone(); 2]));
    assert!(!fails(&vec![waits; 9]));
    assert!(!fails(&[affinity.clone(), affinity.clone(), other, affinity.clone()]));
    assert!(!fails(&[affinity.clone(), affinity.clone(), call, affinity.clone()]));
    assert!(!fails(&[affinity.clone(), affinity.clone(), ends(OperationName::Mount, None), affinity]));
}
