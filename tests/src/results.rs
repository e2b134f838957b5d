//! Reading `results.json` as a user's script would.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The results of a run.
#[derive(Debug)]
pub struct Results {
    document: Value,
}

/// A finding of the run, whatever number of cases met it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The id of the promise, `DRV-…` or `INV-…`.
    pub contract: String,
    /// The call it was broken in.
    pub method: String,
    pub cause: String,
    /// The part at fault.
    pub party: String,
    /// The strength of a driver's promise; empty for others.
    pub strength: String,
    /// The promise whose breaking explains it, if one does.
    pub consequence_of: String,
    /// The cases that met it; the first shows it best.
    pub cases: Vec<String>,
}

/// A case of the run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub id: String,
    /// Its status, such as `passed`.
    pub status: String,
    /// The findings, as `contract method: cause`.
    pub findings: Vec<String>,
    /// The promises that it judges and had no occasion to.
    pub not_tried: Vec<String>,
    /// The cases before it on the same driver, where it passes without them.
    pub after: Vec<String>,
    /// The command that runs it again.
    pub again: String,
}

impl Results {
    pub fn read(path: &Path) -> Result<Results> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let document =
            serde_json::from_str(&text).with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(Results { document })
    }

    /// All cases, by id.
    pub fn cases(&self) -> Vec<Case> {
        let listed = self.document["cases"].as_array().into_iter().flatten();
        let mut cases: Vec<Case> = listed.map(case).collect();
        cases.sort();
        cases
    }

    /// The cases that did not pass and were not skipped.
    pub fn bad(&self) -> Vec<Case> {
        let good = ["passed", "xfail", "skipped_driver", "skipped_host"];
        self.cases().into_iter().filter(|case| !good.contains(&case.status.as_str())).collect()
    }

    /// The standing of a promise after the run, and the number of cases that tried it.
    pub fn standing(&self, promise: &str) -> Option<(String, u64)> {
        let mut listed = self.document["promises"].as_array()?.iter();
        let record = listed.find(|record| record["id"] == promise)?;
        Some((text(record, "standing"), record["judged_in"].as_u64()?))
    }

    /// The findings of the run, each once.
    pub fn findings(&self) -> Vec<Finding> {
        let listed = self.document["findings"].as_array().into_iter().flatten();
        listed.map(finding).collect()
    }
}

fn finding(finding: &Value) -> Finding {
    let also_in = finding["also_in"].as_array().into_iter().flatten();
    let mut cases = vec![text(finding, "case")];
    cases.extend(also_in.filter_map(Value::as_str).map(str::to_owned));
    Finding {
        contract: text(finding, "contract"),
        method: text(finding, "method"),
        cause: text(finding, "cause"),
        party: text(finding, "party"),
        strength: text(finding, "strength"),
        consequence_of: text(finding, "consequence_of"),
        cases,
    }
}

fn case(case: &Value) -> Case {
    let findings = case["findings"].as_array().into_iter().flatten();
    Case {
        id: text(case, "id"),
        status: text(case, "status"),
        findings: findings
            .map(|finding| {
                format!(
                    "{} {}: {}",
                    text(finding, "contract"),
                    text(finding, "method"),
                    text(finding, "cause")
                )
            })
            .collect(),
        not_tried: texts(case, "not_tried"),
        after: texts(case, "after"),
        again: text(case, "again"),
    }
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let listed = value[field].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
