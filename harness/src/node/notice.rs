//! The manager's notices, as lines of the journal.

use std::str::FromStr;

use contracts::event::{Edge, Event, OperationEdge, Recovered, StateChange, UnknownWord, WaitReturned};
use volume_manager::Notice;

use crate::journal::Journal;

/// Records a notice of the manager.
pub(super) fn record(journal: &Journal, notice: Notice) {
    let edge = |name: String, volume: String, pod: Option<String>, edge, error| {
        let (name, pod) = (word(&name), pod.unwrap_or_default());
        Event::Operation(OperationEdge { name, volume, pod, edge, error })
    };
    journal.hear(match notice {
        Notice::State { world, key, from, to } => {
            Event::State(StateChange { world: word(&world), key, from, to })
        }
        Notice::Started { name, volume, pod } => {
            edge(name.to_string(), volume.to_string(), pod.map(|pod| pod.to_string()), Edge::Start, None)
        }
        Notice::Ended { name, volume, pod, error } => {
            edge(name.to_string(), volume.to_string(), pod.map(|pod| pod.to_string()), Edge::End, error)
        }
        Notice::Knows(known) => Event::Recovered(Recovered { what: word(known.as_str()) }),
        Notice::Waited { what, pod, error } => {
            let pod = journal.symbols().pod(pod.as_str());
            Event::Wait(WaitReturned { what: word(&what), pod, err: error.unwrap_or_default() })
        }
        // The event and the node's status are objects of the API server, which records them itself.
        Notice::Emitted(_) | Notice::InUse(_) => return,
    });
}

fn word<T: FromStr<Err = UnknownWord>>(text: &str) -> T {
    text.parse().expect("the manager of this binary speaks the words of its trace")
}
