//! The lines in the head of a report about the driver's isolation from the machine.

use std::path::Path;

use harness::manifest::Manifest;
use testbed::message::Abilities;

/// The lines about the machine.
pub(super) fn lines(manifest: &Manifest, abilities: &Abilities, in_guests: bool) -> Vec<String> {
    let bounds = &abilities.bounds;
    if in_guests {
        return vec!["out of the driver's reach: all of it runs in guests".to_owned()];
    }
    if manifest.is_running_already() {
        return vec!["open to the driver: it runs already, and nothing keeps it in".to_owned()];
    }
    if let Some(because) = &bounds.open_because {
        return vec![format!("open to the driver, which can write anywhere: {because}")];
    }
    let mut lines = vec![
        "what the driver writes beside `{state}` and the node's root is thrown away and reported; this contains \
         accidents, not malice (`--tier vm` does)"
            .to_owned(),
    ];
    if !abilities.disks_limited {
        lines.push(
            "any of the machine's disks can be used by its number: no control group forbids it".to_owned(),
        );
    }
    let list = |paths: Vec<String>| paths.join(", ");
    let path = |path: &Path| format!("`{}`", path.display());
    if !bounds.open.is_empty() {
        lines.push(format!(
            "opened by the manifest: {}",
            list(bounds.open.iter().map(|open| path(open)).collect())
        ));
    }
    if !bounds.read_only.is_empty() {
        let one = |(at, fstype): &(std::path::PathBuf, String)| format!("{} ({fstype})", path(at));
        lines.push(format!("can only be read: {}", list(bounds.read_only.iter().map(one).collect())));
    }
    if !bounds.hidden.is_empty() {
        let hidden = bounds.hidden.iter().map(|hidden| path(hidden)).collect();
        lines.push(format!("cannot be shown to the driver: {}", list(hidden)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use harness::sandbox::Bounds;

    use super::*;

    fn limited(bounds: Bounds) -> Abilities {
        Abilities { bounds, disks_limited: true, ..Abilities::default() }
    }

    fn lines_of(abilities: &Abilities) -> Vec<String> {
        lines(&Manifest::default(), abilities, false)
    }

    #[test]
    fn head_says_what_is_contained_and_what_is_not() {
        let bounds = Bounds {
            open: vec!["/data".into(), "/dev/nbd0".into()],
            read_only: vec![("/home".into(), "nfs4".into())],
            ..Bounds::default()
        };
        let bounds = limited(bounds);
        let found = lines_of(&bounds);
        assert!(found[0].contains("thrown away") && found[0].contains("not malice"), "{found:?}");
        assert_eq!(
            found[1..],
            ["opened by the manifest: `/data`, `/dev/nbd0`", "can only be read: `/home` (nfs4)"]
        );
        let open = Bounds { open_because: Some("`/` was opened".into()), ..Bounds::default() };
        assert_eq!(
            lines_of(&limited(open)),
            ["open to the driver, which can write anywhere: `/` was opened"]
        );
        let unlimited = Abilities { disks_limited: false, ..bounds.clone() };
        assert!(lines_of(&unlimited).iter().any(|line| line.contains("any of the machine's disks")));
        let running = Manifest::from_socket(Path::new("/x.sock"));
        assert!(lines(&running, &Abilities::default(), false)[0].starts_with("open to the driver"));
        assert!(lines(&running, &bounds, true)[0].starts_with("out of the driver's reach"));
    }
}
