//! The line of a driver's log that says why the driver ended.

/// How far back in the log a crash is looked for: the stacks of many threads follow its message.
pub(super) const LINES: usize = 1000;

/// How a runtime's message about a crash begins.
const CRASHES: [&str; 2] = ["panic: ", "fatal error: "];

/// The message of a crash, or else the last line that says something.
pub(super) fn last_words(log: &[String]) -> Option<String> {
    crash(log).or_else(|| last_line(log).cloned())
}

/// The message of a crash, which stands before its stacks.
pub(super) fn crash(log: &[String]) -> Option<String> {
    let begins = |line: &&String| CRASHES.iter().any(|words| line.starts_with(words));
    if let Some(line) = log.iter().rfind(begins) {
        return Some(line.clone());
    }
    if let Some(at) =
        log.iter().rposition(|line| line.starts_with("thread '") && line.contains("' panicked at "))
    {
        return Some(log.get(at..=at + 1).unwrap_or(&log[at..]).join(" "));
    }
    let thrown = |line: &&String| line.split_once(": ").is_some_and(|(kind, _)| is_error(kind));
    let of_node = last_line(log).is_some_and(|line| line.starts_with("Node.js v"));
    log.iter().rfind(thrown).filter(|_| of_node).cloned()
}

fn last_line(log: &[String]) -> Option<&String> {
    log.iter().rfind(|line| !line.trim().is_empty())
}

/// Whether a word is the name of a JavaScript error, such as `TypeError`.
fn is_error(kind: &str) -> bool {
    kind.ends_with("Error") && kind.chars().all(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(log: &str) -> Option<String> {
        last_words(&log.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn message_of_a_crash_is_reported_without_its_stack() {
        let go = "call\npanic: runtime error: index out of range [-1]\n\ngoroutine 51 [running]:\n\t/server.go:1089 +0x127";
        assert_eq!(of(go).as_deref(), Some("panic: runtime error: index out of range [-1]"));
        let race = "fatal error: concurrent map writes\n\ngoroutine 7 [running]:\nmain.main()";
        assert_eq!(of(race).as_deref(), Some("fatal error: concurrent map writes"));
        let rust = "thread 'main' panicked at src/main.rs:2:5:\nno size\nnote: run with `RUST_BACKTRACE=1`";
        assert_eq!(of(rust).as_deref(), Some("thread 'main' panicked at src/main.rs:2:5: no size"));
        let node = "  throw er;\n\nError: spawn rsync ENOENT\n    at ChildProcess (node:internal:285:19)\n}\n\nNode.js v20.20.2";
        assert_eq!(of(node).as_deref(), Some("Error: spawn rsync ENOENT"));
    }

    #[test]
    fn last_line_of_a_driver_without_a_crash_is_reported() {
        let python = "Traceback (most recent call last):\n  File \"driver.py\", line 1\nKeyError: 'size'\n";
        assert_eq!(of(python).as_deref(), Some("KeyError: 'size'"));
        assert_eq!(of("ready\nthread 'a' panicked at b").as_deref(), Some("thread 'a' panicked at b"));
        assert_eq!(of("\n"), None);
        assert_eq!(crash(&[python.to_owned()]), None);
    }
}
