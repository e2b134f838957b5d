//! The failure of a case: its last step, the line of that, and the cause.

use std::error::Error;
use std::fmt;
use std::panic::Location;

use harness::proxy::code_name;
use serde::{Deserialize, Serialize};

/// The result of a case's body.
pub type Result<T = ()> = std::result::Result<T, Failure>;

/// A case came to an end it should not have come to.
///
/// Deliberately no [`Error`]: then any error can become one with `?`, and takes the line of the `?` along.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The last step of the case.
    pub after: String,
    /// The file and line of the step.
    pub at: Place,
    /// The cause. Boxed, because every step of a case returns such a result.
    pub what: Box<What>,
}

/// The kinds of failures.
#[derive(Debug, Clone)]
pub enum What {
    /// The case saw another story; `pending` are the operations that were still under way.
    Story { expected: String, actual: String, pending: Vec<String> },
    /// An expectation of the case is not met: the sentence and its causes; the story since the last look.
    Broken { chain: Vec<String>, seen: Option<String> },
    /// A numbered promise of the driver is broken, by the answer to a call.
    Promise { contract: &'static str, method: String, cause: String },
    /// The suite could not do its part: our fault, or the machine's.
    Ours(Vec<String>),
    /// The machine lacks a resource: its name and remedy, then the consequences.
    Environment(Vec<String>),
}

impl Failure {
    /// With the last step of the case, for a failure that came from outside of any.
    pub fn after_step(mut self, step: &str) -> Self {
        if self.after.is_empty() {
            step.clone_into(&mut self.after);
        }
        self
    }

    /// Adds the story since the last look to a failure without one.
    pub fn with_story(mut self, look: impl FnOnce() -> String) -> Self {
        if let What::Broken { seen: seen @ None, .. } = &mut *self.what {
            *seen = Some(look());
        }
        self
    }

    /// Adds the operations that were under way when the case gave up waiting.
    pub fn with_under_way(mut self, lines: Vec<String>) -> Self {
        match &mut *self.what {
            What::Story { pending, .. } => pending.extend(lines),
            What::Broken { chain, .. } | What::Ours(chain) => {
                chain.extend(lines.into_iter().map(|what| format!("still {what}")));
            }
            What::Promise { .. } | What::Environment(_) => {}
        }
        self
    }

    /// The failure as reporters show it.
    pub fn breakage(&self) -> Breakage {
        let (expected, actual, cause) = match &*self.what {
            What::Story { expected, actual, pending } => {
                let mut cause = vec![story_cause(expected, actual)];
                cause.extend(pending.iter().map(|what| format!("still {what}")));
                (Some(expected.clone()), Some(actual.clone()), cause)
            }
            What::Broken { chain, seen } => (None, seen.clone(), chain.clone()),
            What::Promise { cause, .. } => (None, None, vec![cause.clone()]),
            What::Ours(chain) | What::Environment(chain) => (None, None, chain.clone()),
        };
        Breakage { after: self.after.clone(), at: self.at.clone(), expected, actual, cause, event: None }
    }
}

/// A place in a source file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file, below the workspace.
    pub file: String,
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The step and the cause of a failed case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakage {
    /// The last thing the case did before, such as `web.stop()`; empty if it did nothing yet.
    pub after: String,
    /// The file and line of the step.
    pub at: Place,
    /// The story that should have been seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The story that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
    /// The error and each of its causes, in plain sentences.
    pub cause: Vec<String>,
    /// The first event of a failure that no injected fault explains, with the driver's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// A sentence about the first line in which two stories differ.
fn story_cause(expected: &str, actual: &str) -> String {
    let (mut wanted, mut seen) = (expected.lines(), actual.lines());
    loop {
        match (wanted.next(), seen.next()) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => return format!("Expected `{}`, but saw `{}`.", squeezed(a), squeezed(b)),
            (Some(a), None) => return format!("Expected `{}`, but nothing more happened.", squeezed(a)),
            (None, Some(b)) => return format!("Saw `{}`, and nothing more was expected.", squeezed(b)),
            (None, None) => return "The stories differ in white space only.".to_owned(),
        }
    }
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An error and its causes, outermost first.
pub fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
    let (mut texts, mut next) = (Vec::new(), Some(error));
    while let Some(error) = next {
        texts.push(text(error));
        // The sources of a status are errors of the transport library.
        next = if error.is::<tonic::Status>() { None } else { error.source() };
    }
    // Some libraries repeat the cause in their own text.
    texts.dedup();
    texts
}

/// An error in one line.
fn text(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<tonic::Status>() {
        Some(status) => answered(status),
        None => error.to_string(),
    }
}

/// A status as a driver's author knows it.
fn answered(status: &tonic::Status) -> String {
    format!("{} \"{}\"", code_name(status.code()), words(status))
}

/// The driver's words in one line.
pub fn words(status: &tonic::Status) -> String {
    let lines = status.message().lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// The place of a caller.
pub fn place(location: &Location<'_>) -> Place {
    Place { file: location.file().to_owned(), line: location.line() }
}

impl<E: Error + 'static> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let at = place(Location::caller());
        Self { after: String::new(), at, what: What::Ours(chain(&error)).into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.breakage().cause.join(": "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_one_line_without_words_of_a_library() {
        let refused = tonic::Status::internal("mount failed: exit status 32\nOutput: unknown file system\n");
        assert_eq!(
            chain(&refused),
            ["Internal \"mount failed: exit status 32; Output: unknown file system\""]
        );
        let late = tonic::Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)));
        assert_eq!(chain(&late).len(), 1);
    }

    #[test]
    fn the_cause_names_the_first_line_that_differs() {
        for (expected, actual, cause) in [
            ("a  x\nb\n", "a  x\nc\n", "Expected `b`, but saw `c`."),
            (
                "a\numount   <publish:disk/web>\n",
                "a\n",
                "Expected `umount <publish:disk/web>`, but nothing more happened.",
            ),
            ("", "a   b\n", "Saw `a b`, and nothing more was expected."),
        ] {
            assert_eq!(story_cause(expected, actual), cause);
        }
    }

    #[test]
    fn an_error_takes_the_line_of_its_question_mark_along() {
        fn fails() -> Result {
            "x".parse::<u32>()?;
            Ok(())
        }
        let failure = fails().expect_err("x is no number");
        assert!(failure.at.file.ends_with("failure.rs"), "{failure}");
    }
}
