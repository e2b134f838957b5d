//! `volproof run`: from flags to a plan, and from its end to an exit code.
//!
//! Everything that can be wrong is looked for before the first case: filters, manifest, tier, the machine,
//! then the driver itself, which is started once and asked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use harness::facts::{self, Fact, Standing};
use harness::manifest::{Manifest, ManifestError, Sabotage, Span};
use harness::nfs_export::Misbehaviour;
use harness::printable::printable;

use super::vm::{self, Chosen};
use super::{Called, Exit, nearest_lines, report, runtime};
use runner::dispatch::{self, Ledger, Plan};
use runner::event::{Header, RunRecord, Status};
use runner::exit_code;
use runner::report::line::count;
use runner::select::{NoMatch, Selection, Shard, skip};
use testbed::case::{self, Case};
use testbed::message::Abilities;
use testbed::need::{Need, Provider};

mod again;
mod bounds;
mod place;
mod reports;
mod rerun;

use again::again;
use place::Place;
use reports::{Reports, reporters};
use rerun::Watched;

/// Run the cases against a driver.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub(super) struct Flags {
    /// Substrings or globs of case ids; without any, all cases
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    #[command(flatten)]
    driver: DriverFlags,
    /// Leave out what matches
    #[arg(long, value_name = "FILTER")]
    exclude: Vec<String>,
    /// Only cases about the driver, or about the node. Without it and without FILTER: the driver's, if it is not fake-csi
    #[arg(long, value_enum)]
    about: Option<About>,
    /// Only part I of N
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Where the cases run
    #[arg(long, value_enum, default_value_t = Tier::Auto)]
    tier: Tier,
    /// Kernels to boot: NAME, `all`, or a FILE.deb. Only with --tier vm
    #[arg(long)]
    kernel: Vec<String>,
    /// How many cases run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// The seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run each case N times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// How long one case may take, such as 60s or 2m
    #[arg(long, default_value = "60s", value_parser = span)]
    timeout: Duration,
    /// Start no case after the first that failed
    #[arg(long)]
    fail_fast: bool,
    /// Start no case after one that finds this promise broken
    #[arg(long, value_name = "PROMISE", hide = true)]
    until_broken: Option<String>,
    /// Leave the sandboxes of cases that do not pass as they are until Ctrl-C, for `volproof enter`
    #[arg(long)]
    keep: bool,
    /// Fail (exit 4) where a case would be skipped for the machine's sake
    #[arg(long, value_name = "WHO", value_enum)]
    require: Option<Require>,
    /// Write results.json, junit.xml, report.html and the logs of all cases here
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Run again each time the driver's program or manifest changes, until Ctrl-C, and tell what that has changed
    #[arg(long, conflicts_with_all = ["socket", "keep"])]
    rerun: bool,
    /// Tell what has changed since an earlier run: its directory, or its results.json
    #[arg(long, value_name = "PATH")]
    since: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Let the suite's own NFS server misbehave, to see that cases notice
    #[arg(long, value_name = "HOW", hide = true)]
    spoil: Option<Misbehaviour>,
    /// With each case, the sentence it proves
    #[arg(short, long)]
    verbose: bool,
}

/// Which driver. At most one of these; none at all means fake-csi.
#[derive(Debug, Args)]
#[group(multiple = true)]
pub(super) struct DriverFlags {
    /// The driver's manifest
    #[arg(long, value_name = "FILE", conflicts_with_all = ["driver_cmd", "socket", "testdriver"])]
    driver: Option<PathBuf>,
    /// The driver's command line, with {socket}, {endpoint}, {node} and {state}; no manifest is needed
    #[arg(long, value_name = "CMD", conflicts_with = "socket")]
    driver_cmd: Option<String>,
    /// The socket of a driver that already runs
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The socket of its controller service, where that is another process
    #[arg(long, value_name = "PATH")]
    controller_socket: Option<PathBuf>,
    /// How long the driver may take until it answers, such as 60s; the manifest's `[timeouts] start` otherwise
    #[arg(long, value_name = "TIME", value_parser = span)]
    start_timeout: Option<Duration>,
    /// The manifest of the Kubernetes external storage e2e tests, beside --driver-cmd or --socket
    #[arg(long, value_name = "FILE")]
    testdriver: Option<PathBuf>,
    /// Have fake-csi break one promise, to see how that is told; `volproof __fake-csi sabotages` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["driver", "driver_cmd", "socket", "testdriver"])]
    sabotage: Option<Sabotage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// On this kernel, as root
    Host,
    /// In a user namespace
    Rootless,
    /// In guests of their own
    Vm,
    /// host for root, else rootless; what the machine lacks runs in a guest, where a kernel for it was fetched
    Auto,
}

/// Which cases are meant, by what they can find a fault in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum About {
    /// Those that ask the driver for something
    Driver,
    /// Those of the volume manager alone
    Node,
    /// All of them
    All,
}

impl About {
    /// What to select by; none for all.
    pub(super) fn chosen(self) -> Option<case::About> {
        match self {
            Self::Driver => Some(case::About::Driver),
            Self::Node => Some(case::About::Node),
            Self::All => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Require {
    /// The machine must have what the selected cases need
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
    Github,
}

impl Flags {
    /// What the cases are to be about. With a foreign driver those that it cannot influence are left out, unless they
    /// are asked for.
    fn about(&self) -> Option<case::About> {
        match self.about {
            Some(about) => about.chosen(),
            None if self.filters.is_empty() && !self.driver.is_ours() => Some(case::About::Driver),
            None => None,
        }
    }

    /// Whether cases run in user namespaces.
    fn rootless(&self) -> bool {
        self.tier == Tier::Rootless || (self.tier == Tier::Auto && !facts::is_root())
    }
}

impl DriverFlags {
    /// Whether it is the driver inside this binary.
    pub(super) fn is_ours(&self) -> bool {
        let Self {
            driver,
            driver_cmd,
            socket,
            testdriver,
            controller_socket: _,
            start_timeout: _,
            sabotage: _,
        } = self;
        driver.is_none() && driver_cmd.is_none() && socket.is_none() && testdriver.is_none()
    }

    /// That driver, with more arguments for it.
    pub(super) fn ours(&self, arguments: &[&str]) -> Manifest {
        let sabotage = self.sabotage.iter().flat_map(|sabotage| ["--sabotage", sabotage.name()]);
        let arguments: Vec<String> = arguments.iter().copied().chain(sabotage).map(str::to_owned).collect();
        Manifest::fake_csi(&arguments)
    }
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span: harness::manifest::Span = text.parse().map_err(|error| format!("{error}"))?;
    if span.duration().is_zero() { Err("must be more than nothing".to_owned()) } else { Ok(span.duration()) }
}

pub(super) fn run(flags: Flags, colour: bool, called: &Called) -> Result<u8, Exit> {
    let (filters, exclude) = (flags.filters.clone(), flags.exclude.clone());
    let selection = Selection { filters, exclude, about: flags.about(), shard: flags.shard };
    let cases = selection.choose(&case::all()).map_err(|error| no_match(&error))?;
    if cases.is_empty() {
        return Err(Exit::new(exit_code::NOTHING_RAN, "no case is left to run")
            .hint("`volproof list` shows all cases; --exclude and --shard take some away"));
    }
    check_tier(&flags)?;
    // Both are read before anything is started: what is wrong with them is wrong at once.
    let manifest = manifest(&flags.driver, flags.rootless())?;
    // Before the run, which may write its own results over it.
    let earlier = match &flags.since {
        Some(path) => Some((path.display().to_string(), report::earlier(path)?)),
        None => None,
    };
    let run = |earlier: Option<&Earlier>| run_on_kernels(&flags, &cases, earlier, colour, called);
    match flags.rerun {
        true => run_on_change(&flags, &manifest, earlier, colour, run),
        false => run(earlier.as_ref()).map(|(code, _)| code),
    }
}

/// An earlier run, and what it is called.
type Earlier = (String, RunRecord);

/// Runs, and runs again each time the driver changes. Each run but the first is compared with the one before.
fn run_on_change(
    flags: &Flags,
    first: &Manifest,
    mut earlier: Option<Earlier>,
    colour: bool,
    run: impl Fn(Option<&Earlier>) -> Result<(u8, Option<RunRecord>), Exit>,
) -> Result<u8, Exit> {
    let file = flags.driver.driver.as_deref();
    let mut watched = Watched::of(first, file);
    loop {
        let code = match run(earlier.as_ref()) {
            Ok((code, record)) => {
                earlier = record.map(|record| ("the run before".to_owned(), record)).or(earlier);
                code
            }
            Err(exit) if !exit.is_interruption() => super::print_error(&exit, colour),
            Err(exit) => return Err(exit),
        };
        if code == exit_code::INTERRUPTED || !watched.wait()? {
            return Ok(code);
        }
        // A manifest that cannot be read now is told by the run, and mended by the next change.
        watched = match manifest(&flags.driver, flags.rootless()) {
            Ok(manifest) => Watched::of(&manifest, file),
            Err(_) => watched.again(),
        };
    }
}

/// One run on each kernel that was chosen. Returns the worst code, and the last record.
fn run_on_kernels(
    flags: &Flags,
    cases: &[&'static Case],
    earlier: Option<&Earlier>,
    colour: bool,
    called: &Called,
) -> Result<(u8, Option<RunRecord>), Exit> {
    let kernels = match flags.tier {
        Tier::Vm => vm::chosen(&flags.kernel)?.into_iter().map(Some).collect(),
        _ => vec![None],
    };
    let several = kernels.len() > 1;
    let (mut worst, mut last) = (exit_code::OK, None);
    for kernel in kernels {
        let below = kernel.as_ref().filter(|_| several).map(|kernel| kernel.name.clone());
        let record =
            run_once(flags, cases.to_vec(), kernel, below.as_deref(), earlier.cloned(), colour, called)?;
        worst = worse(worst, record.exit_code);
        let is_interrupted = record.interrupted;
        last = Some(record);
        if is_interrupted {
            break;
        }
    }
    Ok((worst, last))
}

/// What a run over several kernels exits with: an interruption counts most, then a failure, and success least.
fn worse(one: u8, other: u8) -> u8 {
    const ORDER: [u8; 5] = [
        exit_code::INTERRUPTED,
        exit_code::CASES_FAILED,
        exit_code::ENVIRONMENT,
        exit_code::NOTHING_RAN,
        exit_code::OK,
    ];
    ORDER.into_iter().find(|code| [one, other].contains(code)).unwrap_or(one.max(other))
}

/// One run, from its ledger to its reports.
fn run_once(
    flags: &Flags,
    cases: Vec<&'static Case>,
    kernel: Option<Chosen>,
    below: Option<&str>,
    earlier: Option<Earlier>,
    colour: bool,
    called: &Called,
) -> Result<RunRecord, Exit> {
    let report =
        flags.report.as_ref().map(|directory| below.map_or(directory.clone(), |below| directory.join(below)));
    let reports = Reports::asked(report.as_deref())?;
    runtime()?.block_on(async {
        let ledger = super::open_ledger()?;
        let reports = match reports {
            Some(reports) => reports,
            None => Reports::scratch(&ledger)?,
        };
        let prepared = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(Exit::new(exit_code::INTERRUPTED, "interrupted before the first case")),
            prepared = prepare(flags, cases, kernel, &ledger, &reports) => prepared,
        };
        match prepared {
            Ok(mut plan) => {
                reports.begin()?;
                plan.again = again(called, &flags.filters);
                plan.earlier = earlier;
                let record = dispatch::run(plan, ledger, reporters(flags, colour)).await?;
                reports.write(&record)?;
                Ok(record)
            }
            Err(exit) => {
                drop(ledger.close().await);
                Err(exit)
            }
        }
    })
}

/// Looks at the machine or into a guest, asks the driver there, and decides which case runs where.
async fn prepare(
    flags: &Flags,
    cases: Vec<&'static Case>,
    kernel: Option<Chosen>,
    ledger: &Ledger,
    reports: &Reports,
) -> Result<Plan, Exit> {
    let (main, guests) = match kernel {
        Some(kernel) => {
            let (place, guests) = Place::in_guests(flags, kernel, ledger, reports).await?;
            (place, Some(guests))
        }
        None => (Place::here(flags, ledger, reports).await?, None),
    };
    let mut plan = Plan {
        header: header(flags, &main, &cases),
        rootless: flags.rootless(),
        cases: vec![],
        skipped: vec![],
        manifest: main.manifest.clone(),
        abilities: main.abilities.clone(),
        directory: reports.directory.clone(),
        timeout: flags.timeout,
        repeat: flags.repeat,
        // A driver that was there before has room for one sandbox.
        until_broken: flags.until_broken.clone(),
        fail_fast: flags.fail_fast || (flags.keep && main.manifest.is_running_already()),
        keep: flags.keep,
        again: String::new(),
        update: std::env::var_os("UPDATE_EXPECT").is_some(),
        spoil: flags.spoil,
        earlier: None,
        away: None,
    };
    // Of a driver with which nothing can be tried only its answers are told.
    let cases = if main.abilities.are_unusable() { vec![] } else { cases };
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
        None if flags.tier == Tier::Auto => send_away(flags, &mut plan, ledger, reports).await,
        None => {}
    }
    if flags.require == Some(Require::Host) {
        require_host(&plan)?;
    }
    Ok(plan)
}

/// Lets a guest run what this machine cannot, where one can be had without fetching anything; says of the others
/// what would make them run.
async fn send_away(flags: &Flags, plan: &mut Plan, ledger: &Ledger, reports: &Reports) {
    let lacking = |status: Status| status == Status::SkippedHost;
    if !plan.skipped.iter().any(|(_, status, _)| lacking(*status)) {
        return;
    }
    let guest = match vm::at_hand() {
        Ok(kernel) => Place::in_guests(flags, kernel, ledger, reports).await,
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

/// What a case is likely to care about: the rest is `doctor`'s to tell.
const TOLD: [Fact; 7] =
    [Fact::Loop, Fact::Ext4, Fact::Xfs, Fact::Btrfs, Fact::Fuse, Fact::Nfsd, Fact::DeviceMapper];

fn header(flags: &Flags, place: &Place, cases: &[&'static Case]) -> Header {
    let Place { facts: found, manifest, abilities, ground, .. } = place;
    let needed: BTreeSet<Need> = cases.iter().flat_map(|case| case.needs()).collect();
    // Who started the driver is no ability of it.
    let of_the_driver = |need: &&Need| need.provider() == Provider::Driver && **need != Need::OwnProcess;
    let can = needed.iter().filter(of_the_driver).filter(|need| ground.has(**need));
    let automatic = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
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
        has: place.told(&TOLD, true),
        lacks: place.told(&TOLD, false),
        cases: match (abilities.are_unusable(), abilities.wrong.is_empty()) {
            (true, _) => 1,
            (false, told) => cases.len() * flags.repeat as usize + usize::from(!told),
        },
        // Cases of a driver that already runs would see each other's mounts, those of a shared backend each
        // other's volumes.
        lanes: if together { flags.jobs.map_or(automatic, usize::from) } else { 1 },
        seed: flags.seed,
        about: flags
            .about()
            .map(|about| format!("about the {about} (`--about all` runs all)"))
            .unwrap_or_default(),
        machine: bounds::told(manifest, abilities, flags.tier == Tier::Vm),
        limits: limits(manifest),
        odd: abilities.odd.clone(),
    }
}

/// The driver's own name; where that cannot be used, the manifest's, or the program's.
fn name_of(abilities: &Abilities, manifest: &Manifest) -> String {
    let program = || manifest.command.first().cloned().unwrap_or_else(|| "the driver".to_owned());
    let name = match abilities.says.name.as_str() {
        "" => manifest.name.clone().unwrap_or_else(program),
        name => name.to_owned(),
    };
    printable(&name).into_owned()
}

/// What is not promised of a driver that somebody else has started.
fn limits(manifest: &Manifest) -> Vec<String> {
    if !manifest.is_running_already() {
        return vec![];
    }
    let all = [
        "the driver runs already: cases go one at a time, and those that restart it are skipped",
        "what it mounts and keeps elsewhere than below the node's root, and how it ends, is not seen",
        "its log is not ours: no last words, and no look for secrets in it",
    ];
    all.map(str::to_owned).into()
}

pub(super) fn manifest(flags: &DriverFlags, rootless: bool) -> Result<Manifest, Exit> {
    let unusable = |error: ManifestError| {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        Exit::usage(error.to_string()).details(causes.map(ToString::to_string)).maybe_hint(error.hint())
    };
    let mut manifest = match (&flags.driver, &flags.driver_cmd, &flags.socket) {
        (Some(file), ..) => Manifest::read(file).map_err(unusable)?,
        (_, Some(command), _) => Manifest::from_command(command).map_err(unusable)?,
        (.., Some(socket)) => Manifest::from_socket(socket),
        _ if flags.testdriver.is_some() => {
            return Err(Exit::usage("cannot start a driver from --testdriver alone: it does not say how")
                .hint("add --driver-cmd './my-driver --endpoint={endpoint}', or --socket of one that runs"));
        }
        _ if rootless => flags.ours(&["--backing=directory"]),
        _ => flags.ours(&[]),
    };
    if let Some(limit) = flags.start_timeout {
        manifest.timeouts.start = Span::new(limit);
    }
    if let Some(file) = &flags.testdriver {
        manifest = manifest.with_testdriver(file).map_err(|error| {
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
            Exit::usage(error.to_string()).details(causes.map(ToString::to_string)).maybe_hint(error.hint())
        })?;
    }
    if let Some(socket) = manifest.socket.as_ref().filter(|_| rootless) {
        let message = format!(
            "cannot test the driver behind `{}` without root: its mounts could not be seen",
            socket.display()
        );
        return Err(Exit::environment(message)
            .hint("run it with sudo, or let the run start the driver: --driver-cmd"));
    }
    if let Some(socket) = &flags.controller_socket {
        manifest.controller_socket = Some(std::path::absolute(socket).unwrap_or_else(|_| socket.clone()));
    }
    if let Some(unknown) =
        manifest.expected_failures.keys().find(|id| case::find(&case::CaseId::new(*id)).is_none())
    {
        let ids: Vec<_> = case::all().iter().map(|case| case.id()).collect();
        let nearest = runner::select::nearest(unknown, &ids);
        return Err(Exit::usage(format!("[expected_failures] names `{unknown}`, and there is no such case"))
            .details(nearest_lines(&nearest)));
    }
    Ok(manifest)
}

/// Refuses a driver that runs already, where the machine's own mounts are out of reach.
pub(super) fn refuse_running(manifest: &Manifest, place: &str) -> Result<(), Exit> {
    let Some(socket) = &manifest.socket else { return Ok(()) };
    let message = format!("cannot use the driver behind `{}` {place}: it mounts elsewhere", socket.display());
    Err(Exit::environment(message)
        .hint("let volproof start it: `command` in the manifest, or --driver-cmd './my-driver --endpoint={endpoint}'"))
}

fn check_tier(flags: &Flags) -> Result<(), Exit> {
    let root = facts::is_root();
    match flags.tier {
        Tier::Vm if flags.keep => {
            Err(Exit::usage("--keep keeps sandboxes on this machine, and not in guests")
                .hint("`volproof vm shell` gives a prompt in a guest"))
        }
        Tier::Vm => Ok(()),
        _ if !flags.kernel.is_empty() => {
            Err(Exit::usage("--kernel chooses the kernels of guests, and means nothing without --tier vm"))
        }
        Tier::Host if facts::standing() == Standing::NamespaceRoot => {
            let message = "cannot run on the host: this is root of a user namespace, and not of the machine";
            Err(Exit::environment(message)
                .hint("run it outside of that, or with --tier rootless what needs no root"))
        }
        Tier::Host if !root => Err(Exit::environment("cannot run on the host: this is not root")
            .hint("run it with sudo, or with --tier rootless what needs no root")),
        _ => Ok(()),
    }
}

/// What is said of filters that mean nothing.
pub(super) fn no_match(error: &NoMatch) -> Exit {
    Exit::new(exit_code::NOTHING_RAN, error.to_string()).hint("`volproof list` shows all cases")
}
