//! The declaration of a case, and the list of all cases.
//!
//! A case is a function with `#[case]` above it. The attribute puts a [`Case`] into [`CASES`] at link time,
//! so adding a case touches one file: there is no list to extend.

use std::fmt;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::failure::{Place, Result};
use crate::need::{Need, Provider};

#[doc(hidden)]
pub use linkme;

/// Every case of this binary, in no order; [`all`] sorts them.
#[linkme::distributed_slice]
pub static CASES: [Case];

/// The body of a case, once called.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result> + 'a>>;

/// A registered case. Made by `#[case]`, never by hand.
#[derive(Debug)]
pub struct Case {
    /// The module of the case, with the crate's name.
    pub module: &'static str,
    /// The function's name.
    pub name: &'static str,
    /// The value of `each` it runs with.
    pub variant: Option<&'static str>,
    /// The doc comment: the first paragraph is the sentence it proves.
    pub proves: &'static str,
    /// Source file, below the workspace.
    pub file: &'static str,
    /// Line of the function's name.
    pub line: u32,
    /// The needs without which it cannot run.
    pub needs: &'static [Need],
    /// The further needs of the value of `each`: the value's type has `const fn needs(self)`.
    pub variant_needs: &'static [Need],
    /// The promises that it judges by itself, beside the rules that judge every case.
    pub judges: &'static [&'static str],
    /// Whether the case only makes calls and undoes their effects, so that it can share its driver with other cases.
    pub shares_driver: bool,
    /// Why no other case may run meanwhile.
    pub serial: Option<&'static str>,
    /// Why it takes seconds, whatever the machine: it begins before others, so that nothing waits for its end.
    pub waits: Option<&'static str>,
    /// Why it is known to fail with every driver.
    pub xfail: Option<&'static str>,
    pub run: fn(&mut Cx) -> Running<'_>,
}

impl Case {
    /// The name people use: the module path in the crate `cases`, the function, the variant in brackets.
    pub fn id(&self) -> CaseId {
        let module = self.module.strip_prefix("cases::").unwrap_or(self.module);
        let variant = self.variant.map(|variant| format!("[{variant}]")).unwrap_or_default();
        CaseId(format!("{module}::{}{variant}", self.name))
    }

    /// The file and line of the case.
    pub fn place(&self) -> Place {
        Place { file: self.file.to_owned(), line: self.line }
    }

    /// The sentence it proves, on one line.
    pub fn sentence(&self) -> String {
        let paragraph = self.proves.split("\n\n").next().unwrap_or_default();
        paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Whether the driver can make it fail.
    pub fn about(&self) -> About {
        // Every volume of the driver's is asked for by a need; calls that take no volume are in `csi`.
        let asks = |need: &Need| need.provider() == Provider::Driver && *need != Need::OwnProcess;
        let is_driver = self.needs().iter().any(asks) || self.id().as_str().starts_with("csi::");
        if is_driver { About::Driver } else { About::Node }
    }

    /// All needs, each once, in order.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = self.needs.iter().chain(self.variant_needs).copied().collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}

/// The party in which a case can find a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The driver: the case asks it for something.
    Driver,
    /// The node alone: the volume manager without a driver.
    Node,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Driver => "driver",
            Self::Node => "node",
        })
    }
}

/// All cases, by id.
pub fn all() -> Vec<&'static Case> {
    let mut cases: Vec<&'static Case> = CASES.iter().collect();
    cases.sort_by_cached_key(|case| case.id());
    cases
}

/// The case of that id.
pub fn find(id: &CaseId) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id() == *id)
}

/// The id of a case, such as `csi::block::teardown_is_the_reverse_of_setup`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaseId(String);

impl CaseId {
    /// An id as it was written. [`find`] says whether such a case exists.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
