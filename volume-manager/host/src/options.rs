//! A mount to make: source, target, type and options, secrets kept apart. Touches nothing.

use std::fmt;
use std::path::PathBuf;

/// A mount to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// A device, `server:/path`, or a word such as `tmpfs`. Empty: the kernel shows `none`.
    pub source: String,
    /// The directory to mount on. If it is missing, the mount fails with ENOENT.
    pub target: PathBuf,
    /// `None`: probed, as mount(8) does.
    pub fs_type: Option<String>,
    pub options: MountOptions,
    pub scope: Scope,
}

impl MountSpec {
    /// Without options, in the plain scope.
    pub fn new(source: impl Into<String>, target: impl Into<PathBuf>, fs_type: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
            fs_type: Some(fs_type.into()),
            options: MountOptions::default(),
            scope: Scope::Plain,
        }
    }

    #[must_use]
    pub fn with_options(mut self, options: MountOptions) -> Self {
        self.options = options;
        self
    }
}

/// The lifetime of a mount's helper processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// As long as the node's process (the kubelet's `…WithoutSystemd`).
    #[default]
    Plain,
    /// In a transient systemd scope where systemd runs, so that a FUSE daemon outlives the node. Without
    /// systemd this is [`Scope::Plain`]. Mounts made by system calls have no helper and need no scope.
    Systemd,
}

/// Mount options: plain ones that may be shown, and sensitive ones that may carry secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    plain: Vec<String>,
    sensitive: Vec<Sensitive<String>>,
}

impl MountOptions {
    /// Plain options. An item may itself be a comma list; commas in double quotes do not split.
    pub fn new<I: IntoIterator<Item = S>, S: AsRef<str>>(options: I) -> Self {
        let plain = options.into_iter().flat_map(|item| split_options(item.as_ref())).collect();
        Self { plain, sensitive: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, option: impl AsRef<str>) -> Self {
        self.push(option);
        self
    }

    /// Adds an option, or a comma list of options.
    pub fn push(&mut self, option: impl AsRef<str>) {
        self.plain.extend(split_options(option.as_ref()));
    }

    /// Adds an option that is shown as `<masked>`.
    pub fn push_sensitive(&mut self, option: impl Into<String>) {
        self.sensitive.push(Sensitive::new(option.into()));
    }

    pub fn plain(&self) -> &[String] {
        &self.plain
    }

    pub fn sensitive(&self) -> &[Sensitive<String>] {
        &self.sensitive
    }

    /// Whether `option` is among the plain or the sensitive options.
    pub fn contains(&self, option: &str) -> bool {
        self.plain.iter().any(|have| have == option)
            || self.sensitive.iter().any(|have| have.expose() == option)
    }

    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.sensitive.is_empty()
    }

    /// A copy without the plain options for which `drop` is true.
    #[must_use]
    pub fn without(&self, drop: impl Fn(&str) -> bool) -> Self {
        let plain = self.plain.iter().filter(|option| !drop(option)).cloned().collect();
        Self { plain, sensitive: self.sensitive.clone() }
    }

    /// All options joined by commas, secrets in clear. Only for the kernel or a command's arguments.
    pub fn expose_joined(&self) -> String {
        let secret = self.sensitive.iter().map(|option| option.expose().as_str());
        self.plain.iter().map(String::as_str).chain(secret).collect::<Vec<_>>().join(",")
    }

    /// All options joined by commas, each secret as `<masked>`. For texts and logs.
    pub fn masked_joined(&self) -> String {
        let secret = self.sensitive.iter().map(|_| MASK);
        self.plain.iter().map(String::as_str).chain(secret).collect::<Vec<_>>().join(",")
    }
}

/// Splits at commas outside double quotes, as mount(8) does; empty parts are dropped.
pub(crate) fn split_options(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for letter in list.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("there is one part from the start").push(letter);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

const MASK: &str = "<masked>";

/// A value that is never printed: its `Debug` and `Display` are `<masked>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sensitive<T>(T);

impl<T> Sensitive<T> {
    pub fn new(secret: T) -> Self {
        Self(secret)
    }

    /// The secret itself. A review looks at every call of this.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> fmt::Display for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_quotes_do_not_split() {
        let options = MountOptions::new(["ro,context=\"a:b:c0,c1\"", "nodev"]);
        assert_eq!(options.plain(), ["ro", "context=\"a:b:c0,c1\"", "nodev"]);
    }

    #[test]
    fn secrets_are_masked_wherever_they_are_shown() {
        let mut options = MountOptions::new(["vers=3"]);
        options.push_sensitive("password=hunter2");
        assert_eq!(options.masked_joined(), "vers=3,<masked>");
        assert_eq!(options.expose_joined(), "vers=3,password=hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(!format!("{options:#?}").contains("hunter2"));
    }
}
