//! A manifest from a driver's own answers: the driver is started, asked the first questions, and ended again.

use std::fmt::Write;

use harness::facts::{self, Facts};
use harness::manifest::{Manifest, ManifestError};

use super::super::{Exit, look, under_ledger};
use super::from::quoted;
use runner::exit_code;
use testbed::message::Abilities;

/// A manifest with the answers of the driver that this command starts.
pub(super) fn manifest(command: &str) -> Result<String, Exit> {
    let unusable = |error: ManifestError| Exit::usage(error.to_string()).maybe_hint(error.hint());
    let manifest = Manifest::from_command(command).map_err(unusable)?;
    look::can_sandbox(Facts::get())?;
    let mut text = String::new();
    under_ledger(async |ledger| {
        let directory = ledger.scratch()?;
        let abilities = look::ask(&manifest, !facts::is_root(), ledger, &directory, None).await?;
        text = written(&manifest, &abilities);
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
    let words: Vec<String> = manifest.command.iter().map(|word| quoted(word)).collect();
    let _ = write!(text, "\nname = {}\ncommand = [{}]\n\n[volume]\n", quoted(&says.name), words.join(", "));
    for (key, refusal) in [("file_system", &abilities.no_filesystem), ("block", &abilities.no_block)] {
        if let Some(why) = refusal {
            let _ = writeln!(text, "# {}\n{key} = false", why.replace('\n', " "));
        }
    }
    let _ = writeln!(text, "# fs_types = [\"ext4\", \"xfs\"]\n# size = \"64MiB\"");
    text
}
