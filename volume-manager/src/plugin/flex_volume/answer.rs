//! The answer of a FlexVolume driver: JSON on its standard output. Touches nothing.

use serde::Deserialize;

/// The answer to a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    /// `Success`, `Failure` or `Not supported`.
    pub(super) status: String,
    pub(super) message: String,
    pub(super) capabilities: Capabilities,
}

/// What a driver can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Capabilities {
    pub(super) attach: bool,
    #[serde(rename = "selinuxRelabel")]
    pub(super) selinux_relabel: bool,
    #[serde(rename = "fsGroup")]
    pub(super) fs_group: bool,
}

/// A driver that does not mention a capability has it.
impl Default for Capabilities {
    fn default() -> Self {
        Self { attach: true, selinux_relabel: true, fs_group: true }
    }
}

impl Answer {
    /// Reads what a driver has printed; `None` if it is no JSON.
    pub(super) fn of(output: &str) -> Option<Self> {
        serde_json::from_str(output).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_there_unless_they_are_denied() {
        let answer = Answer::of(r#"{"status": "Success", "capabilities": {"attach": false}}"#).unwrap();
        assert_eq!(answer.status, "Success");
        assert_eq!(
            answer.capabilities,
            Capabilities { attach: false, selinux_relabel: true, fs_group: true }
        );
        assert!(Answer::of(r#"{"status": "Success"}"#).unwrap().capabilities.attach);
    }

    #[test]
    fn output_without_json_is_no_answer() {
        assert_eq!(Answer::of("mount: permission denied"), None);
        assert_eq!(Answer::of(""), None);
    }
}
