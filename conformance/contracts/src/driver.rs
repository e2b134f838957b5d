//! The driver's promises that a trace can show: its answers, compared with the mount table.
//!
//! The mounts of a call are recorded before its answer, so when an answer is judged the table is what the
//! driver left. A call whose answer the proxy changed is not held against the driver. A driver may stage a volume
//! without a mount: then no rule asks for one at the staging path.

use std::collections::BTreeMap;

use crate::event::{Event, Mount, RpcEnd, TraceLine};
use crate::rule::books::{Call, Progress};
use crate::rule::{Books, Rule};

mod again;
mod answer;
mod identity;
mod publish;
mod stage;
mod touched;
mod unpublish;
mod volumes;

pub use identity::{CAPABILITIES, NODE};
pub use publish::{FLAG_NOT_IN_FORCE, FOR_WRITING, NOT_MOUNTED, NOT_STAGED, lacks_device};
pub use touched::REMOVED;
pub use unpublish::REFUSED_AGAIN;
pub use volumes::{TOO_LARGE, TOO_SMALL};

/// Every rule that binds the driver and can be judged from a trace, by number. Each is a promise of
/// [`crate::promise`], in its words.
pub const RULES: &[&Rule] = &[
    &identity::NAME,
    &identity::ANSWERED,
    &identity::CAPABILITIES_STAY,
    &identity::NODE_ID,
    &identity::READABLE,
    &again::CREATED,
    &volumes::LARGE_ENOUGH,
    &again::DELETED,
    &again::ATTACHED,
    &again::DETACHED,
    &stage::STAGED_ONCE,
    &stage::AS_ASKED,
    &stage::FLAGS_IN_FORCE,
    &stage::FAILED_LEAVES_NOTHING,
    &publish::READ_ONLY,
    &publish::ITS_OWN_VOLUME,
    &publish::A_DEVICE,
    &publish::MOUNTED_ONCE,
    &publish::ONLY_WHAT_IS_STAGED,
    &publish::MOUNTED,
    &publish::FLAGS_IN_FORCE,
    &publish::SINGLE_WRITER,
    &unpublish::TARGET_IS_GONE,
    &touched::TARGET_IS_DELETED,
    &unpublish::UNPUBLISHED_AGAIN,
    &unpublish::OTHERS_STAY,
    &touched::BESIDE_THE_TARGET,
    &unpublish::INLINE_UNPUBLISHED_AGAIN,
    &unpublish::STAGING_IS_GONE,
    &unpublish::UNSTAGED_AGAIN,
    &touched::STAGING_STAYS,
    &unpublish::PUBLISHED_IS_NOT_UNSTAGED,
    &touched::BESIDE_THE_PATH,
    &answer::WELL_IN_WORDS,
    &again::STAGED,
    &again::PUBLISHED,
    &answer::SNAPSHOT,
    &answer::COMPLETE,
    &answer::NO_NEGATIVE_SIZE,
    &answer::ERRORS_IN_WORDS,
    &answer::NO_DETAILS,
];

/// The call that has just been answered by the driver itself.
fn answered<'a>(books: &'a Books, line: &'a TraceLine, method: &str) -> Option<(&'a Call, &'a RpcEnd)> {
    let end = said_by_driver(line).filter(|end| end.method == method)?;
    Some((books.calls.get(&end.id)?, end))
}

/// The answer of a call, if it is the driver's own and the proxy has not changed it.
fn said_by_driver(line: &TraceLine) -> Option<&RpcEnd> {
    let Event::RpcEnd(end) = &line.event else { return None };
    (end.unreadable.is_none() && (end.injected.is_none() || was_made_twice(end))).then_some(end)
}

/// Whether the proxy repeated a call after an OK answer and changed nothing else: the trace has the second answer.
fn was_made_twice(end: &RpcEnd) -> bool {
    let injected = end.injected.as_deref().unwrap_or_default();
    let (injected, _) = injected.split_once(DIFFER).unwrap_or((injected, ""));
    let mut words = injected.split(' ');
    let first_failed = words.clone().any(|word| word.starts_with("first="));
    words.any(|word| word == "duplicate=true") && !first_failed && end.is_from_the_driver()
}

/// The fields in which the two answers of such a call differ. Recordings of earlier versions do not name the fields.
fn difference(end: &RpcEnd) -> Option<&str> {
    let (_, fields) = end.injected.as_deref()?.split_once(DIFFER)?;
    Some(fields.strip_prefix(" in ").unwrap_or_default())
}

/// Stands behind what the proxy did with a call, before words that are the driver's own.
const DIFFER: &str = " answers=differ";

/// The call, if the answer was OK.
fn succeeded<'a>(books: &'a Books, line: &'a TraceLine, method: &str) -> Option<&'a Call> {
    answered(books, line, method).filter(|(_, end)| end.code == "OK").map(|(call, _)| call)
}

/// Whether a call repeats one that has worked, or was sent twice.
fn is_repeated(books: &Books, call: &Call, end: &RpcEnd) -> bool {
    let done = |steps: &BTreeMap<String, Progress>, path: &str| steps.get(path) == Some(&Progress::Done);
    let known = books.volume(call.volume());
    was_made_twice(end)
        || known.is_some_and(|known| match call.method.as_str() {
            "NodeStageVolume" => done(&known.staged, call.staging()),
            "NodePublishVolume" => done(&known.published, call.target()),
            _ => false,
        })
}

/// The topmost mount at a path.
fn top<'a>(books: &'a Books, path: &str) -> Option<&'a Mount> {
    books.mounts.get(path).and_then(|stack| stack.last())
}

/// The number of mounts on top of each other at a path.
fn depth(books: &Books, path: &str) -> usize {
    books.mounts.get(path).map_or(0, Vec::len)
}

fn is_block(call: &Call) -> bool {
    call.request().capability().is_block()
}

/// Whether a comma-separated list of mount options has one.
fn has(options: &str, option: &str) -> bool {
    options.split(',').any(|one| one == option)
}

/// Flags that say the same on every file system, and that the mount table shows.
const PLAIN_FLAGS: &[&str] = &["ro", "noatime", "nodiratime", "nosuid", "nodev", "noexec", "sync"];

/// The plain flags of a request.
fn plain_flags(call: &Call) -> Vec<&str> {
    let flags = call.request().capability().mount_flags();
    flags.flat_map(|flag| flag.split(',')).filter(|flag| PLAIN_FLAGS.contains(flag)).collect()
}

fn is_in_force(flag: &str, mount: &Mount) -> bool {
    has(&mount.opts, flag) || has(&mount.super_opts, flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_a_promise_in_its_words() {
        for rule in RULES {
            let promise = crate::promise::find(rule.id).expect("a promise of that number");
            assert_eq!(rule.sentence, promise.sentence, "{}", rule.id);
        }
    }

    #[test]
    fn each_rule_has_its_own_number_and_they_are_in_order() {
        let ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }
}
