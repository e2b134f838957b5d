//! The manager's notices, as lines of the journal. Touches nothing.

use std::str::FromStr;

use contracts::event::{Edge, Event, OperationEdge, Recovered, StateChange, UnknownWord, WaitReturned};
use volume_manager::Notice;

use crate::symbols::Symbols;

/// The line for a notice of the manager; none for what the API server records itself.
pub(super) fn event(symbols: &Symbols, notice: Notice) -> Option<Event> {
    let edge = |name: String, volume: String, pod: Option<String>, edge, error| {
        let (name, pod) = (word(&name), pod.unwrap_or_default());
        Event::Operation(OperationEdge { name, volume, pod, edge, error })
    };
    Some(match notice {
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
            let pod = symbols.pod(pod.as_str());
            Event::Wait(WaitReturned { what: word(&what), pod, err: error.unwrap_or_default() })
        }
        // The event and the node's status are objects of the API.
        Notice::Emitted(_) | Notice::InUse(_) => return None,
    })
}

fn word<T: FromStr<Err = UnknownWord>>(text: &str) -> T {
    text.parse().expect("the manager of this binary speaks the words of its trace")
}
