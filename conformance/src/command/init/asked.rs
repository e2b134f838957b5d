//! A manifest from a driver's own answers: the driver is started, asked the first questions, and ended again.

use std::fmt::Write;
use std::path::Path;

use harness::facts::{self, Facts};
use harness::manifest::Manifest;

use super::super::{Exit, image, look, under_ledger};
use super::from::quoted;
use runner::exit_code;
use testbed::message::Abilities;

/// The text of a manifest with the answers of its driver, which is started for that.
pub(super) fn manifest(manifest: &Manifest) -> Result<String, Exit> {
    look::can_sandbox(Facts::get())?;
    let mut text = String::new();
    under_ledger(async |ledger| {
        let directory = ledger.scratch()?;
        let mut started = manifest.clone();
        image::adopt_here(&mut started, ledger).await?;
        let abilities = look::ask(&started, !facts::is_root(), ledger, &directory, None).await?;
        text = written(manifest, &abilities);
        Ok(exit_code::OK)
    })?;
    Ok(text)
}

fn written(manifest: &Manifest, abilities: &Abilities) -> String {
    let says = &abilities.says;
    let mut text = String::from(
        "# Written by `volproof init --driver-cmd`, from the driver's answers. What it reports is asked again by each run.\n",
    );
    let mut note = |line: String| text += &format!("# - {}\n", line.replace('\n', " "));
    let reported = [("plugin", &says.plugin), ("controller", &says.controller), ("node", &says.node)];
    for (service, capabilities) in reported {
        let words: Vec<&str> = capabilities.iter().map(String::as_str).collect();
        note(format!(
            "the {service} reports {}",
            if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
        ));
    }
    if says.max_volumes > 0 {
        note(format!("{} of its volumes fit on a node", says.max_volumes));
    }
    for (key, value) in &says.topology {
        note(format!("its node is in {key} = {value}"));
    }
    abilities.odd.iter().for_each(|odd| note(odd.clone()));
    abilities
        .wrong
        .iter()
        .for_each(|wrong| note(format!("{wrong}, which breaks a promise or ends each case")));
    if !abilities.creates() {
        note(
            "it makes no volumes: name some in `existing` below [volume], or say `inline = true`".to_owned(),
        );
    }
    let _ = write!(text, "\nname = {}\n", quoted(&says.name));
    if let Some(image) = &manifest.image {
        let _ = writeln!(text, "image = {}", quoted(&image.to_string_lossy()));
    }
    if !manifest.command.is_empty() {
        let words: Vec<String> = manifest.command.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(text, "command = [{}]", words.join(", "));
    }
    if let Some(here) = directory(manifest) {
        let _ = writeln!(text, "# Words after the program name files there.\ndirectory = {}", quoted(&here));
    }
    text.push_str("\n[volume]\n");
    for (key, refusal) in [("file_system", &abilities.no_filesystem), ("block", &abilities.no_block)] {
        if let Some(why) = refusal {
            let _ = writeln!(text, "# {}\n{key} = false", why.replace('\n', " "));
        }
    }
    let _ = writeln!(text, "# fs_types = [\"ext4\", \"xfs\"]\n# size = \"64MiB\"");
    text
}

/// The current directory, if words of the command are paths in it: a run may begin elsewhere.
fn directory(manifest: &Manifest) -> Option<String> {
    let is_path = |word: &String| !word.starts_with(['/', '-']) && Path::new(word).exists();
    let named = manifest.image.is_none() && manifest.command.iter().skip(1).any(is_path);
    let here = named.then(std::env::current_dir)?.ok()?;
    Some(here.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_in_the_current_directory_is_found_from_elsewhere() {
        let of = |command: &str| directory(&Manifest::from_command(command).expect("a command"));
        let here = std::env::current_dir().expect("a directory").to_string_lossy().into_owned();
        assert_eq!(of("python3 Cargo.toml {endpoint}"), Some(here));
        assert_eq!(of("./Cargo.toml --endpoint={endpoint}"), None);
        assert_eq!(of("python3 /etc/hosts {endpoint}"), None);
    }
}
