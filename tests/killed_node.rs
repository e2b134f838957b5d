//! The node is killed after each of its effects while a pod with volumes of every kind comes and goes.
//!
//! A run of the case kills it after each 48th effect, so that 48 runs with consecutive seeds reach them all.

use tests::{Volproof, has_root, is_thorough};

const CASE: &str = "all_volumes::node_killed_after_an_effect";

#[test]
fn node_may_be_killed_after_each_effect() {
    if !has_root() || !is_thorough("the node is killed after each 48th of its effects, not after each") {
        return;
    }
    let ended = Volproof::new().args("run --repeat 48").arg(CASE).run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert!(ended.told().contains("48 cases: 48 passed"), "{}", ended.told());
}
