//! A trace as text: a header with the version, then one JSON object a line.
//!
//! A recording without a header has version 1; recorders of other volume managers write none. In version 1, events of
//! an unknown name are skipped, and disturbances are steps. From version 2 on, an unknown name is an error. Unknown
//! words in known events are errors in every version, and the error names the nearest known word. Unknown fields of a
//! CSI message are kept in every version: a newer CSI may have added them.

use serde::de::Error as _;
use serde_json::{Map, Value};

use crate::event::{Disturbance, Event, Step, UnknownWord};

/// The `ev` of a header.
const HEADER: &str = "trace";
/// The newest version, which is the one that is written.
const VERSION: u64 = 2;

/// The first line of a new recording.
pub fn header() -> String {
    format!(r#"{{"ev":"{HEADER}","version":{VERSION}}}"#)
}

/// Reads the lines of a recording, one after the other.
#[derive(Debug)]
pub struct Reader {
    version: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self { version: 1 }
    }
}

impl Reader {
    /// Whether each mount of the recording names the process that made it.
    pub fn names_makers(&self) -> bool {
        self.version >= 2
    }

    /// The event of the next line; none for a header, and for an event of unknown name in version 1.
    ///
    /// # Errors
    /// When the line does not fit the version of the recording.
    pub fn event(&mut self, fields: Map<String, Value>) -> serde_json::Result<Option<Event>> {
        let ev = fields.get("ev").and_then(Value::as_str).unwrap_or_default();
        if ev == HEADER {
            self.version = version(&fields)?;
            return Ok(None);
        }
        match self.version {
            1 if ev == "step" => {
                return serde_json::from_value::<Step>(Value::Object(fields)).map(|step| Some(step.meant()));
            }
            1 if !Event::WORDS.contains(&ev) => return Ok(None),
            1 => {}
            _ => UnknownWord::check(ev, Event::WORDS).map_err(serde_json::Error::custom)?,
        }
        if ev == "disturbed" {
            let what = fields.get("what").and_then(Value::as_str).unwrap_or_default();
            UnknownWord::check(what, Disturbance::WORDS).map_err(serde_json::Error::custom)?;
        }
        serde_json::from_value(Value::Object(fields)).map(Some)
    }
}

fn version(header: &Map<String, Value>) -> serde_json::Result<u64> {
    match header.get("version").and_then(Value::as_u64) {
        Some(version @ 1..=VERSION) => Ok(version),
        _ => Err(serde_json::Error::custom(format!(
            "this is a trace of version {}, and {VERSION} is the newest that can be read",
            header.get("version").unwrap_or(&Value::Null)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ObjectKind, PodChange, PodPhase, TraceLine};

    fn read(lines: &[&str]) -> Result<Vec<Event>, String> {
        let mut reader = Reader::default();
        let mut events = Vec::new();
        for line in lines {
            let fields = serde_json::from_str(line).unwrap();
            events.extend(reader.event(fields).map_err(|error| error.to_string())?);
        }
        Ok(events)
    }

    fn disturbances() -> Vec<Disturbance> {
        let path = || "/kl/x".to_owned();
        vec![
            Disturbance::ApiSlow,
            Disturbance::ApiFast,
            Disturbance::KindUnheard { kind: ObjectKind::Node },
            Disturbance::KindHeard { kind: ObjectKind::Node },
            Disturbance::RecordDamaged { path: path() },
            Disturbance::RecordLost { path: path() },
            Disturbance::MountDead { path: path() },
            Disturbance::StepFailed { step: "umount".to_owned(), path: path() },
            Disturbance::UsedElsewhere { volume: "v1".to_owned() },
        ]
    }

    #[test]
    fn each_disturbance_is_read_as_it_is_written() {
        let written = disturbances();
        assert_eq!(written.len(), Disturbance::WORDS.len());
        for disturbance in written {
            let event = Event::Disturbed(disturbance);
            let line = TraceLine { seq: 1, t_ms: 0.0, event: event.clone() };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(read(&[&header(), &text]), Ok(vec![event]), "{text}");
        }
    }

    #[test]
    fn unknown_word_is_refused_with_the_nearest() {
        let effect = r#"{"ev":"effect","effect":"mont","path":"/x","confirmed":true}"#;
        let rows = [
            (
                r#"{"ev":"efect","effect":"mount","path":"/x","confirmed":true}"#,
                "`efect`, the nearest known is `effect`",
            ),
            (effect, "`mont`, the nearest known is `mount`"),
            (r#"{"ev":"disturbed","what":"api_slo"}"#, "`api_slo`, the nearest known is `api_slow`"),
            (r#"{"ev":"pod","pod":"a","to":"remove"}"#, "`remove`, the nearest known is `removed`"),
            (r#"{"ev":"process","who":"nod","edge":"start"}"#, "`nod`, the nearest known is `node`"),
            (r#"{"ev":"step","do":"damage","on":"/x"}"#, "`step`"),
        ];
        for (line, expected) in rows {
            let error = read(&[&header(), line]).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        // In version 1 only the names of events may be unknown.
        assert!(read(&[effect]).is_err());
        assert_eq!(read(&[r#"{"ev":"kubelet_storage_state","err":""}"#]), Ok(Vec::new()));
    }

    #[test]
    fn newer_field_of_a_message_is_kept() {
        let line =
            r#"{"ev":"rpc_start","id":1,"method":"NodeStageVolume","req":{"volumeId":"v","newer":[1]}}"#;
        let events = read(&[&header(), line]).unwrap();
        assert!(serde_json::to_string(&events).unwrap().contains(r#""newer":[1]"#));
    }

    #[test]
    fn newer_version_is_refused() {
        let error = read(&[r#"{"ev":"trace","version":3}"#]).unwrap_err();
        assert!(error.contains("version 3, and 2 is the newest"), "{error}");
    }

    #[test]
    fn steps_of_an_old_recording_are_disturbances_and_pods() {
        let rows = [
            ("api", "slow", Event::Disturbed(Disturbance::ApiSlow)),
            ("damage", "/x", Event::Disturbed(Disturbance::RecordDamaged { path: "/x".into() })),
            ("hear", "Node", Event::Disturbed(Disturbance::KindHeard { kind: ObjectKind::Node })),
            ("add_pod", "web", Event::Pod(PodChange { pod: "web".into(), to: PodPhase::Added })),
            (
                "set_state",
                "u RuntimeGone",
                Event::Pod(PodChange { pod: "u".into(), to: PodPhase::RuntimeGone }),
            ),
            ("asked", "x", Event::Case(Step { action: "asked".into(), on: "x".into(), at: None })),
        ];
        for (action, on, event) in rows {
            let line = format!(r#"{{"ev":"step","do":"{action}","on":"{on}"}}"#);
            assert_eq!(read(&[&line]), Ok(vec![event]));
        }
    }
}
