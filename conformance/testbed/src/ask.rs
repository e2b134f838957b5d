//! Asks for a driver's abilities by starting it once.

use std::time::Duration;

use api::AccessMode;
use harness::api_server::{ProvisionError, Provisioner, VolumeRequest};
use harness::driver::{DriverError, WrongAnswer};
use harness::journal::{Claiming, Journal, Witness};
use harness::observe::MountWatch;
use harness::proxy::{code_name, is_unanswered, unreadable};
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use harness::testbed::{Surroundings, TestbedError};
use tonic::Code;

use crate::bed::builder;
use crate::failure::{chain, words};
use crate::foreign::Foreign;
use crate::limits;
use crate::message::{Abilities, Orders, Refusal};

/// Starts the driver, asks it, and lets it end.
pub async fn ask(orders: &Orders, sandbox: &Sandbox) -> Result<Abilities, Refusal> {
    let journal = journal(sandbox)?;
    let foreign = Foreign::of(orders)?;
    let cgroup = limits::of_driver(orders, sandbox);
    let disks_limited = cgroup.as_ref().is_some_and(|cgroup| cgroup.disks_are_limited());
    let around = match builder(orders, sandbox, journal.clone(), foreign.as_ref(), cgroup.clone())
        .surround()
        .await
    {
        Ok(around) => around,
        Err(TestbedError::Driver(DriverError::Answers { wrong, tail })) => {
            let bounds = sandbox.bounds().clone();
            return Ok(Abilities { wrong, last_words: tail, disks_limited, bounds, ..Abilities::default() });
        }
        Err(error) => return Err(Refusal::of_testbed(&error)),
    };
    let answer = questions(&around, sandbox).await;
    let answer = answer.map(|abilities| Abilities { disks_limited, ..abilities });
    let log = around.driver().lock().await.log_tail(LAST_WORDS);
    let ends = around.end_driver(ENDING).await;
    around.clean_up().await.map_err(|error| Refusal::of_preparation(&error))?;
    let answer = answer.map(|mut abilities| {
        if !ends {
            abilities.outlives_sigterm = true;
            abilities.odd.push(format!(
                "the driver did not end within {} s of SIGTERM: it is killed at the end of each case",
                ENDING.as_secs()
            ));
        }
        let beside = cgroup.map(|cgroup| cgroup.made_beside()).unwrap_or_default();
        abilities.odd.extend(limits::groups_stay(&beside));
        abilities.wrong.extend(journal.leaked_secrets().into_iter().map(secret_repeated));
        abilities
    });
    match answer {
        Ok(abilities) if abilities.wrong.is_empty() && abilities.odd.is_empty() => Ok(abilities),
        Ok(abilities) => Ok(Abilities { last_words: log, ..abilities }),
        Err(chain) => Err(Refusal { chain, hint: None, log, driver_has_ended: false }),
    }
}

/// The journal that a testbed needs. Nothing of it is read but the secrets that were repeated: its witness is there to claim
/// the disks that the driver mounts in its sandbox.
fn journal(sandbox: &Sandbox) -> Result<Journal, Refusal> {
    let witness: Option<Box<dyn Witness>> = match sandbox.is_shared() {
        true => None,
        false => {
            let watch = MountWatch::start().map_err(|error| Refusal::ours(&error))?;
            Some(Box::new(Claiming::new(watch, sandbox)))
        }
    };
    Ok(Journal::new(Symbols::new(sandbox.layout()), witness))
}

/// The wrong answer of an error that repeats a secret of its request.
fn secret_repeated((method, key): (String, String)) -> WrongAnswer {
    let cause = format!("the message of its error repeats the secret `{key}`");
    let promise = Some("DRV-094".to_owned());
    WrongAnswer { method, promise, cause, detail: String::new(), is_fatal: false }
}

/// The time for the driver to end after SIGTERM. The first case waits for it; a driver that does not heed the signal is
/// killed at the end of each case.
const ENDING: Duration = Duration::from_secs(3);

/// The number of last lines that are shown: they explain most odd answers, and fit a terminal.
const LAST_WORDS: usize = 10;

/// The fault of a node id that spoils readers. CSI limits only its length, but objects, logs and topologies that hold
/// it are read line by line.
fn odd_node_id(id: &str) -> Option<String> {
    id.contains(char::is_control)
        .then(|| format!("NodeGetInfo: the id of the node holds control characters ({id:?})"))
}

/// Asks for everything that a need depends on and no capability reports.
async fn questions(around: &Surroundings, sandbox: &Sandbox) -> Result<Abilities, Vec<String>> {
    let settings = &around.manifest().volume;
    let lacking = |said: Option<bool>, key: &str| {
        (said == Some(false)).then(|| format!("the manifest says that there are none (`{key} = false`)"))
    };
    let mut abilities = Abilities {
        says: around.capabilities().clone(),
        no_block: lacking(settings.block, "block"),
        no_filesystem: lacking(settings.file_system, "file_system"),
        wrong: around.driver().lock().await.wrong_answers().to_vec(),
        bounds: sandbox.bounds().clone(),
        ..Abilities::default()
    };
    abilities.odd.extend(odd_node_id(&abilities.says.node_id));
    if !abilities.creates() {
        // Existing volumes are taken as the manifest describes them.
        return Ok(abilities);
    }
    let mut probes = Probes {
        provisioner: &around.provisioner,
        made: 0,
        odd: Vec::new(),
        wrong: Vec::new(),
        is_silent: false,
    };
    let plain = |name: &str| VolumeRequest::new(name, around.manifest());
    if settings.file_system.is_none() {
        abilities.no_filesystem = probes.refusal(plain("file-system")).await?;
    }
    if settings.block.is_none() {
        let block = VolumeRequest { block: true, mount_options: vec![], ..plain("block") };
        abilities.no_block = probes.refusal(block).await?;
    }
    if !abilities.shares_on_a_node() && abilities.no_filesystem.is_none() {
        let access_modes = vec![AccessMode::ReadWriteMany];
        abilities.no_shared = probes.refusal(VolumeRequest { access_modes, ..plain("shared") }).await?;
    }
    if around.manifest().has_other_node() && abilities.no_filesystem.is_none() {
        let access_modes = vec![AccessMode::ReadWriteMany];
        let wanted = VolumeRequest { access_modes, ..plain("shared-by-nodes") };
        abilities.no_shared_by_nodes = probes.refusal(wanted).await?;
    }
    let Probes { made, odd, wrong, .. } = probes;
    abilities.wrong.extend(wrong);
    // A driver that makes no volume of any kind, and does not say that it supports none, hides its fault in skips.
    if made == 0 && abilities.no_filesystem.is_some() && abilities.no_block.is_some() && !odd.is_empty() {
        abilities.wrong.push(WrongAnswer {
            method: "CreateVolume".to_owned(),
            promise: None,
            cause: "no volume of any kind can be made".to_owned(),
            detail: odd.join("; "),
            is_fatal: false,
        });
    }
    abilities.odd.extend(odd);
    Ok(abilities)
}

/// Volumes that are made and deleted again, to see whether the driver makes such.
struct Probes<'a> {
    provisioner: &'a Provisioner,
    /// The number of volumes that were created.
    made: usize,
    odd: Vec<String>,
    wrong: Vec<WrongAnswer>,
    /// Whether the driver has left a call without an answer: each further one would take as long.
    is_silent: bool,
}

impl Probes<'_> {
    /// Why the driver makes no such volume, if it does not. One that it makes is deleted again.
    ///
    /// # Errors
    /// When the volume could not be asked for at all.
    async fn refusal(&mut self, wanted: VolumeRequest) -> Result<Option<String>, Vec<String>> {
        let kind = wanted.name.replace('-', " ");
        if self.is_silent {
            return Ok(Some(format!("not asked for {kind} volumes, since the driver did not answer before")));
        }
        let error = match self.provisioner.provision(&wanted).await {
            Ok(_) => {
                self.made += 1;
                self.delete(&wanted.name, &kind).await;
                return Ok(None);
            }
            Err(error) => error,
        };
        match &error {
            ProvisionError::Create { source, .. } if unreadable(source).is_some() => {
                let found = WrongAnswer::unreadable("CreateVolume", source, &format!("a {kind} volume"));
                // Each kind would be one more finding of the same fault.
                self.note(found);
                // An unreadable answer is no refusal and says nothing about abilities. The cases find out for themselves.
                Ok(None)
            }
            ProvisionError::Create { source, .. } if is_unanswered(source) => {
                self.note(WrongAnswer::unanswered("CreateVolume", source));
                self.is_silent = true;
                Ok(Some(format!("CreateVolume does not answer for {kind} volumes")))
            }
            ProvisionError::Create { source, .. } => {
                let code = code_name(source.code());
                // With these codes a driver refuses the kind of volume altogether.
                let is_odd =
                    !matches!(source.code(), Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange);
                if is_odd {
                    self.odd.push(format!(
                        "CreateVolume answered {code} for a {kind} volume (\"{}\"): taken as not supported, for which CSI has INVALID_ARGUMENT",
                        words(source)
                    ));
                }
                Ok(Some(format!("CreateVolume refuses {kind} volumes: {code} \"{}\"", words(source))))
            }
            ProvisionError::Empty { .. } => {
                self.wrong.push(WrongAnswer {
                    method: "CreateVolume".to_owned(),
                    promise: None,
                    cause: "answered OK without a volume, which CSI requires".to_owned(),
                    detail: format!("a {kind} volume"),
                    is_fatal: false,
                });
                Ok(Some(format!("CreateVolume answers {kind} volumes without a volume")))
            }
            _ => Err(chain(&error)),
        }
    }

    /// Notes a wrong answer once: each kind would be one more finding of the same fault.
    fn note(&mut self, found: Option<WrongAnswer>) {
        self.wrong.extend(found.filter(|found| !self.wrong.iter().any(|known| known.is_same(found))));
    }

    async fn delete(&mut self, name: &str, kind: &str) {
        if let Err(error) = self.provisioner.delete(name).await {
            if let ProvisionError::Delete { source, .. } = &error
                && let Some(silent) = WrongAnswer::unanswered("DeleteVolume", source)
            {
                self.is_silent = true;
                return self.note(Some(silent));
            }
            let said = chain(&error).join(": ");
            self.odd
                .push(format!("the {kind} volume that was made to ask for it may still be there: {said}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_id_of_several_lines_is_odd() {
        assert_eq!(odd_node_id("node-1.example.com/a b"), None);
        for id in ["node\n1", "\u{1b}[2J", "node-1\u{85}"] {
            let odd = odd_node_id(id).expect("it is odd");
            assert!(odd.starts_with("NodeGetInfo: ") && !odd.contains(char::is_control), "{odd:?}");
        }
    }
}
