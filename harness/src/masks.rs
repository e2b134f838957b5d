//! The secrets that a run knows, and texts without them.
//!
//! Each text that is written or shown passes through [`Masks::hide`]. Events that rules judge do not: a rule has to see an
//! answer as the driver gave it. Reads and writes nothing.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use csi_proto::json::MASK;

mod file;

use crate::manifest::{Manifest, Secrets};

/// Bytes of the shortest secret that is masked. A shorter one occurs in texts by chance.
pub const SHORTEST: usize = 6;

/// The number of secrets that are remembered, the newest: while a node is watched, its tokens are renewed again and again.
const REMEMBERED: usize = 1024;

/// All secrets of a run. Clones share them.
#[derive(Clone, Default)]
pub struct Masks(Arc<Mutex<VecDeque<Secret>>>);

struct Secret {
    key: String,
    /// In clear, and encoded as drivers and clients of storage servers encode it.
    forms: Vec<String>,
    /// Whether a request has carried it to a driver.
    given: bool,
    /// Whether a field that is no secret has had the same value: a driver that repeats it reveals nothing.
    public: bool,
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masks({})", self.all().len())
    }
}

impl Masks {
    /// The secrets that a manifest names. A file that cannot be read is reported by the code that needs it.
    pub fn of(manifest: &Manifest) -> Masks {
        let masks = Masks::default();
        manifest.all_secrets().for_each(|secrets| masks.learn(secrets));
        masks
    }

    /// Remembers the secrets in these files.
    pub(crate) fn learn(&self, secrets: &Secrets) {
        for file in secrets.files() {
            for (key, value) in Secrets::load(Some(file)).unwrap_or_default() {
                self.add(&key, value.reveal());
            }
        }
    }

    /// Remembers a secret, unless it is shorter than [`SHORTEST`].
    pub fn add(&self, key: &str, value: &str) {
        if value.len() < SHORTEST {
            return;
        }
        let mut all = self.all();
        let known =
            all.iter().position(|secret| secret.forms[0] == value).and_then(|index| all.remove(index));
        let new = || Secret { key: key.to_owned(), forms: forms(value), given: false, public: false };
        all.push_back(known.unwrap_or_else(new));
        if all.len() > REMEMBERED {
            all.pop_front();
        }
    }

    /// Remembers a secret that a request carries to a driver; `beside` is the text of the request's other fields.
    pub fn confide(&self, key: &str, value: &str, beside: &str) {
        self.add(key, value);
        let mut all = self.all();
        if let Some(secret) = all.iter_mut().find(|secret| secret.forms[0] == value) {
            secret.given = true;
            secret.public |= beside.contains(value);
            key.clone_into(&mut secret.key);
        }
    }

    /// The key of a secret in this text that the driver knows from a secret field only.
    pub fn confided_in(&self, text: &str) -> Option<String> {
        let is_revealed = |secret: &&Secret| secret.given && !secret.public && secret.is_in(text);
        self.all().iter().find(is_revealed).map(|secret| secret.key.clone())
    }

    /// The text without secrets.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let all = self.all();
        let mut found: Vec<&str> = all.iter().flat_map(|secret| secret.in_text(text)).collect();
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        // Longest first: one secret may be a part of another.
        found.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Cow::Owned(found.iter().fold(text.to_owned(), |text, form| text.replace(form, MASK)))
    }

    /// Replaces every secret in the text.
    pub fn hide_in(&self, text: &mut String) {
        if let Cow::Owned(hidden) = self.hide(text) {
            *text = hidden;
        }
    }

    /// The value with every text in it hidden. Keys are names, and stay.
    pub fn hide_in_json(&self, value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => self.hide_in(text),
            serde_json::Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in_json(item)),
            serde_json::Value::Object(map) => map.values_mut().for_each(|value| self.hide_in_json(value)),
            _ => {}
        }
    }

    /// Every form of every secret, the longest first.
    pub fn forms(&self) -> Vec<String> {
        let mut forms: Vec<String> = self.all().iter().flat_map(|secret| secret.forms.clone()).collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Secret>> {
        // A poisoned lock is ignored: a panic cannot leave a secret half added.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secret {
    fn in_text<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        self.forms.iter().map(String::as_str).filter(move |form| text.contains(form))
    }

    fn is_in(&self, text: &str) -> bool {
        self.in_text(text).next().is_some()
    }
}

/// A value in clear, in base64, escaped for a URL, and escaped as in JSON or in Go's `%q`; its lines one by one, since
/// a key in PEM is printed in parts.
fn forms(value: &str) -> Vec<String> {
    let json = serde_json::Value::from(value).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let url = |is_space_plus: bool| {
        let mut text = String::new();
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    text.push(char::from(byte))
                }
                b' ' if is_space_plus => text.push('+'),
                // Writing to a string cannot fail.
                byte => drop(write!(text, "%{byte:02X}")),
            }
        }
        text
    };
    let mut forms = vec![value.to_owned(), base64(value.as_bytes()), json, url(false), url(true)];
    // In base64 of `user:secret` the secret's digits depend on the length before it modulo three. These are the digits of
    // its whole groups for each of the three offsets.
    let within = (0..3).filter_map(|skipped| value.as_bytes().get(skipped..));
    let within = within.map(|rest| &rest[..rest.len() / 3 * 3]).filter(|rest| rest.len() >= SHORTEST);
    forms.extend(within.map(base64));
    let lines =
        value.lines().map(str::trim).filter(|line| line.len() >= 2 * SHORTEST && !line.starts_with("-----"));
    forms.extend(lines.map(str::to_owned));
    let mut seen = std::collections::BTreeSet::new();
    forms.retain(|form| seen.insert(form.clone()));
    forms
}

/// Without the padding, which some encoders leave out.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digits =
            (0..=chunk.len()).map(|place| char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63]));
        text.extend(digits);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(values: &[&str]) -> Masks {
        let masks = Masks::default();
        values.iter().for_each(|value| masks.add("key", value));
        masks
    }

    #[test]
    fn secret_is_hidden_in_clear_and_encoded() {
        let masks = masks(&["p&ss \"w\"ord"]);
        for (text, hidden) in [
            ("password=p&ss \"w\"ord,x", "password=***,x"),
            (r#"{"a":"p&ss \"w\"ord"}"#, r#"{"a":"***"}"#),
            ("//user:p%26ss%20%22w%22ord@host", "//user:***@host"),
            ("q=p%26ss+%22w%22ord", "q=***"),
            ("data: cCZzcyAidyJvcmQ=", "data: ***="),
            ("basic YTpwJnNzICJ3Im9yZA==", "basic YTpw***ZA=="),
            ("p&ss", "p&ss"),
        ] {
            assert_eq!(masks.hide(text), hidden);
        }
    }

    #[test]
    fn secret_within_another_leaves_no_rest() {
        assert_eq!(masks(&["secret", "secret-and-more"]).hide("a secret-and-more, a secret"), "a ***, a ***");
    }

    #[test]
    fn short_secret_does_not_hide_words() {
        assert_eq!(masks(&["", "a", "admin"]).hide("an admin"), "an admin");
    }

    #[test]
    fn line_of_a_key_is_hidden_by_itself() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----\n";
        assert_eq!(masks(&[key]).hide("bad line MIIEvQIBADANBgkqhkiG"), "bad line ***");
    }

    #[test]
    fn value_of_an_ordinary_field_is_not_confided() {
        let masks = masks(&["of-a-pod"]);
        masks.confide("password", "hunter2", r#"{"volumeId":"v"}"#);
        masks.confide("pool", "tank-01", r#"{"parameters":{"pool":"tank-01"}}"#);
        assert_eq!(masks.confided_in("no hunter2 here").as_deref(), Some("password"));
        assert_eq!(masks.confided_in("no tank-01, of-a-pod"), None);
        assert_eq!(masks.hide("tank-01"), "***");
    }

    #[test]
    fn old_secrets_make_room_for_new_ones() {
        let masks = Masks::default();
        (0..2 * REMEMBERED).for_each(|number| masks.add("token", &format!("token-{number}.")));
        assert_eq!(masks.all().len(), REMEMBERED);
        assert_eq!(masks.hide("token-2047."), "***");
    }
}
