//! The plan of a run: the cases that run here, in guests or not at all, and the head of the report.

use std::collections::BTreeSet;

use harness::facts::{self, Fact, Standing};
use harness::manifest::Manifest;
use harness::printable::printable;
use runner::dispatch::{Ledger, Plan};
use runner::event::{Header, Status};
use runner::report::line::count;
use runner::select::skip;
use testbed::case::Case;
use testbed::message::Abilities;
use testbed::need::{Need, Provider};

use super::place::{Guests, Place, Start};
use super::reports::Reports;
use super::{Flags, Require, Tier, bounds, manifest};
use crate::command::Exit;
use crate::command::image::DriverImage;
use crate::command::vm::{self, Chosen};

/// Looks at the machine or into a guest, asks the driver there, and decides for each case where it runs.
pub(super) async fn prepare(
    flags: &Flags,
    cases: Vec<&'static Case>,
    kernel: Option<Chosen>,
    ledger: &Ledger,
    reports: &Reports,
) -> Result<Plan, Exit> {
    let image = DriverImage::of(&manifest(&flags.driver, flags.rootless())?).await?;
    let run = Start { flags, image: image.as_ref(), ledger, reports };
    let (main, guests) = match kernel {
        Some(kernel) => {
            let (place, guests) = Place::in_guests(&run, kernel, Guests::Any).await?;
            (place, Some(guests))
        }
        None => (Place::here(&run).await?, None),
    };
    let mut plan = Plan {
        header: header(flags, &main, &cases),
        rootless: flags.rootless(),
        cases: vec![],
        skipped: vec![],
        manifest: main.manifest.clone(),
        abilities: main.abilities.clone(),
        directory: reports.directory.clone(),
        timeout: flags.timeout(),
        repeat: flags.repeat,
        thorough: flags.thorough,
        // A driver that was there before has room for one sandbox.
        until_broken: flags.until_broken.clone(),
        fail_fast: flags.fail_fast || (flags.keep && main.manifest.is_running_already()),
        keep: flags.keep,
        has_report: reports.asked,
        again: String::new(),
        update: std::env::var_os("UPDATE_EXPECT").is_some(),
        spoil: flags.spoil,
        earlier: None,
        away: None,
    };
    // If no case can run with the driver, the report has only its answers.
    let mut cases = if main.abilities.are_unusable() { vec![] } else { cases };
    if flags.shuffle {
        fastrand::Rng::with_seed(flags.seed).shuffle(&mut cases);
    }
    for case in cases {
        match skip(&main.ground.missing(&case.needs())) {
            None => plan.cases.push(case),
            Some((status, reasons)) => plan.skipped.push((case, status, reasons)),
        }
    }
    match guests {
        Some(guests) => {
            plan.header.privilege = "guest".to_owned();
            plan.header.guests = guests.kind().verdict.to_string();
            plan.away = Some(main.away(guests, plan.cases.iter().map(|case| case.id()).collect()));
        }
        None if flags.tier == Tier::Auto => send_away(&run, &mut plan).await,
        None => {}
    }
    if flags.require == Some(Require::Host) {
        require_host(&plan)?;
    }
    Ok(plan)
}

/// Moves cases that this machine cannot run into a guest, if a kernel for one is in the cache and KVM runs it: emulated
/// guests take minutes. Adds to the reasons of the others why no guest runs them.
async fn send_away(run: &Start<'_>, plan: &mut Plan) {
    let lacking = |status: Status| status == Status::SkippedHost;
    if !plan.skipped.iter().any(|(_, status, _)| lacking(*status)) {
        return;
    }
    let guest = match vm::at_hand() {
        Ok(kernel) => Place::in_guests(run, kernel, Guests::OnKvm).await,
        Err(exit) => Err(exit),
    };
    let (place, guests) = match guest {
        Ok(found) => found,
        Err(exit) => {
            let why = format!("no guest for it: {}", exit.in_a_line());
            let skipped = plan.skipped.iter_mut().filter(|(_, status, _)| lacking(*status));
            skipped.for_each(|(.., reasons)| reasons.push(why.clone()));
            return;
        }
    };
    let mut away = BTreeSet::new();
    let mut left = Vec::new();
    for (case, status, mut reasons) in std::mem::take(&mut plan.skipped) {
        match skip(&place.ground.missing(&case.needs())) {
            None if lacking(status) => {
                away.insert(case.id());
                plan.cases.push(case);
            }
            Some((_, in_guest)) if lacking(status) => {
                reasons.extend(in_guest.into_iter().map(|reason| format!("in a guest: {reason}")));
                left.push((case, status, reasons));
            }
            _ => left.push((case, status, reasons)),
        }
    }
    plan.skipped = left;
    if !away.is_empty() {
        let (kernel, verdict) = (place.facts.kernel(), &guests.kind().verdict);
        plan.header.guests = format!("{}, {kernel}, {verdict}", count(away.len(), "case"));
        plan.away = Some(place.away(guests, away));
    }
}

fn require_host(plan: &Plan) -> Result<(), Exit> {
    let lacking = plan.skipped.iter().filter(|(_, status, _)| *status == Status::SkippedHost);
    let lines: Vec<String> =
        lacking.map(|(case, _, why)| format!("{}: {}", case.id(), why.join("; "))).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} would be skipped for the machine's sake, and --require host forbids it",
        count(lines.len(), "case")
    );
    Err(Exit::environment(message).details(lines).hint("`volproof doctor` says what each need takes"))
}

/// The facts about the machine that the head of the report has; `doctor` shows all.
const HEAD: [Fact; 7] =
    [Fact::Loop, Fact::Ext4, Fact::Xfs, Fact::Btrfs, Fact::Fuse, Fact::Nfsd, Fact::DeviceMapper];

fn header(flags: &Flags, place: &Place, cases: &[&'static Case]) -> Header {
    let Place { facts: found, manifest, abilities, ground, .. } = place;
    let needed: BTreeSet<Need> = cases.iter().flat_map(|case| case.needs()).collect();
    // Being started by volproof is no ability of the driver.
    let of_the_driver = |need: &&Need| need.provider() == Provider::Driver && **need != Need::OwnProcess;
    let can = needed.iter().filter(of_the_driver).filter(|need| ground.has(**need));
    // A case waits for the kernel, or for a time to pass, for two thirds of its time.
    let automatic =
        std::thread::available_parallelism().map_or(2, |cores| (cores.get() * 7 / 2).clamp(2, 12));
    let together = ground.has(Need::OwnProcess) && !manifest.shared_backend;
    Header {
        driver: name_of(abilities, manifest),
        driver_version: printable(&abilities.says.version).into_owned(),
        abilities: can.map(|need| need.word().to_owned()).collect(),
        kernel: found.kernel().to_owned(),
        privilege: match (flags.rootless(), facts::standing()) {
            (true, Standing::NamespaceRoot) => "rootless, as root of a user namespace",
            (true, _) => "rootless",
            (false, _) => "root",
        }
        .to_owned(),
        guests: String::new(),
        has: place.fact_names(&HEAD, true),
        lacks: place.fact_names(&HEAD, false),
        cases: match (abilities.are_unusable(), abilities.wrong.is_empty()) {
            (true, _) => 1,
            (false, is_right) => cases.len() * flags.repeat as usize + usize::from(!is_right),
        },
        // Cases of a driver that already runs would see each other's mounts, those of a shared backend each
        // other's volumes.
        lanes: if together { flags.jobs.map_or(automatic, usize::from) } else { 1 },
        seed: flags.seed,
        about: flags
            .about()
            .map(|about| format!("about the {about} (`--about all` runs all)"))
            .unwrap_or_default(),
        machine: bounds::lines(manifest, abilities, flags.tier == Tier::Vm),
        limits: limits(manifest),
        odd: abilities.odd.clone(),
    }
}

/// The driver's name as it answered; if it did not, the manifest's name for it, or its program.
fn name_of(abilities: &Abilities, manifest: &Manifest) -> String {
    let program = || manifest.command.first().cloned().unwrap_or_else(|| "the driver".to_owned());
    let name = match abilities.says.name.as_str() {
        "" => manifest.name.clone().unwrap_or_else(program),
        name => name.to_owned(),
    };
    printable(&name).into_owned()
}

/// The limits of a run on a driver that runs already.
fn limits(manifest: &Manifest) -> Vec<String> {
    if !manifest.is_running_already() {
        return vec![];
    }
    let all = [
        "the driver runs already: cases go one at a time, and those that restart it are skipped",
        "what it mounts and keeps elsewhere than below the node's root, and how it ends, is not seen",
        "its log is out of reach: its last words are not shown, and secrets in it are not found",
    ];
    all.map(str::to_owned).into()
}
