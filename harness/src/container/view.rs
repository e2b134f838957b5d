//! The files that a container sees, as text: one line for each volume and each file in it. Pure.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::symbols::Symbols;

/// Everything that a container sees of its volumes and devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View(Vec<Sight>);

/// One file, directory, link or device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sight {
    pub(super) path: PathBuf,
    /// The depth below a mount of the configuration; 0 for its root.
    pub(super) depth: usize,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The mount, if this is its root.
    pub(super) mount: Option<MountSight>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Directory,
    /// A file with its text, or with its length if it is large or binary.
    File(Content),
    Link(PathBuf),
    Block(String),
    Char(String),
    Socket,
    Fifo,
    /// It cannot be examined, with the reason.
    Unseen(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    Text(String),
    Bytes(u64),
    Unreadable(String),
}

/// The mount at a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountSight {
    /// Whether it could be written to: `rw`, or the kernel's reason.
    pub(super) access: String,
    /// The type and what matters of the options, where the whole of a file system in memory is shown.
    pub(super) memory: Option<String>,
    /// `slave` or `shared`; empty for none.
    pub(super) propagation: String,
}

impl View {
    pub(super) fn new(sights: Vec<Sight>) -> Self {
        Self(sights)
    }

    /// The view in the symbols of a story. Files below the mounts in `drivers` are listed with names and content only: owners
    /// and modes on a driver's volume are the driver's choice.
    pub fn to_text(&self, symbols: &Symbols, drivers: &[&Path]) -> String {
        let mut text = String::new();
        for sight in &self.0 {
            let name = match sight.depth {
                0 => sight.path.display().to_string(),
                depth => format!("{:1$}{2}", "", depth * 2, name(&sight.path)),
            };
            // Writing to a string cannot fail.
            let private = drivers.iter().any(|driver| sight.path.starts_with(driver));
            let _ = write!(text, "{name:<24} {}", Rest { sight, symbols, private });
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

impl View {
    /// The volumes and devices of the container, one line each, without their content, and whether they are writable.
    pub fn given(&self, symbols: &Symbols) -> Vec<String> {
        let given = self.0.iter().filter(|sight| sight.depth == 0);
        let line = |sight: &Sight| {
            let path = sight.path.display().to_string();
            format!("{path:<24} {}", Rest { sight, symbols, private: true })
        };
        given.map(line).collect()
    }
}

struct Rest<'a> {
    sight: &'a Sight,
    symbols: &'a Symbols,
    private: bool,
}

impl fmt::Display for Rest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sight { kind, mode, uid, gid, mount, .. } = self.sight;
        let owner = if self.private { String::new() } else { format!("  {mode:04o} {uid}:{gid}") };
        let device = |number: &String| self.symbols.device(number).unwrap_or_else(|| number.clone());
        match kind {
            Kind::Directory => write!(f, "dir{owner}")?,
            Kind::File(content) => write!(f, "file{owner}  {content}")?,
            // A link's own mode has no meaning.
            Kind::Link(to) => write!(f, "link  -> {}", to.display())?,
            // Owner and mode of a device are those of the machine, so they are left out.
            Kind::Block(number) => write!(f, "block  {}", device(number))?,
            Kind::Char(number) => write!(f, "char  {}", device(number))?,
            Kind::Socket => write!(f, "socket{owner}")?,
            Kind::Fifo => write!(f, "fifo{owner}")?,
            Kind::Unseen(why) => write!(f, "({why})")?,
        }
        let Some(MountSight { access, memory, propagation }) = mount else { return Ok(()) };
        write!(f, "  {access}")?;
        let memory = memory.iter().filter(|_| !self.private);
        let words = memory.map(String::as_str).chain([propagation.as_str()]);
        words.filter(|word| !word.is_empty()).try_for_each(|word| write!(f, "  {word}"))
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Unreadable(why) => write!(f, "({why})"),
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use expect_test::expect;

    fn sight(path: &str, depth: usize, kind: Kind) -> Sight {
        Sight { path: path.into(), depth, kind, mode: 0o644, uid: 0, gid: 7, mount: None }
    }

    #[test]
    fn a_view_reads_like_a_listing() {
        let symbols = Symbols::new(Layout::standard());
        symbols.name_device("disk", "7:3");
        let mut root = sight("/config", 0, Kind::Directory);
        let memory = Some("tmpfs size=1024k".to_owned());
        root.mount = Some(MountSight { access: "ro".into(), memory, propagation: "slave".into() });
        let view = View::new(vec![
            root,
            sight("/config/..generation_1", 1, Kind::Directory),
            sight("/config/..generation_1/a", 2, Kind::File(Content::Text("x\n".into()))),
            sight("/config/..data", 1, Kind::Link("..generation_1".into())),
            sight("/config/big", 1, Kind::File(Content::Bytes(9000))),
            sight("/dev/xvda", 0, Kind::Block("7:3".into())),
            sight("/gone", 0, Kind::Unseen("ENOTCONN".into())),
        ]);
        expect![[r#"
            /config                  dir  0644 0:7  ro  tmpfs size=1024k  slave
              ..generation_1         dir  0644 0:7
                a                    file  0644 0:7  "x\n"
              ..data                 link  -> ..generation_1
              big                    file  0644 0:7  9000 bytes
            /dev/xvda                block  <device:disk>
            /gone                    (ENOTCONN)
        "#]]
        .assert_eq(&view.to_text(&symbols, &[]));
    }
}
