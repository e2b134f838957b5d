//! `volproof watch`: judges a running node and a running driver by all promises.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use csi_proto::v1::GetPluginInfoRequest;
use csi_proto::v1::identity_client::IdentityClient;
use harness::Layout;
use harness::journal::{Journal, Limits};
use harness::observe::MountWatch;
use harness::printable::printable;
use harness::proxy::{self, Proxy, ProxyOptions};
use harness::symbols::Symbols;
use harness::wait::Deadline;
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, under_ledger};
use crate::terminal::{self, note, say};
use crate::watch::{Address, Findings, Metrics, News, Watched, volumes_on, words};
use runner::dispatch::Ledger;
use runner::exit_code;
use testbed::failure::chain;

/// Stand between a node and a driver that run already, print what passes, and judge it.
#[derive(Debug, Args)]
#[command(
    after_help = "The node must use the socket of --listen instead of the driver's own: with node-driver-registrar that is \
                  --kubelet-registration-path. Ctrl-C ends it.\n\nExit codes: 0 nothing was broken; 1 something was; 2 command line; 4 it could not begin."
)]
pub(super) struct Flags {
    /// The driver's own socket
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Where to listen instead of it
    #[arg(long, value_name = "PATH")]
    listen: PathBuf,
    /// The node's root directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    root: PathBuf,
    /// Write down everything that is seen, for `volproof check`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The size at which a trace goes on in another file, such as 100MiB; then FILE.1 is the one before
    #[arg(long, value_name = "SIZE", requires = "trace", value_parser = size)]
    trace_size: Option<u64>,
    /// How many files before the one that is written are kept
    #[arg(long, value_name = "N", requires = "trace_size", default_value_t = 4)]
    trace_files: usize,
    /// Append each broken promise to a file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    findings: Option<PathBuf>,
    /// Show calls, times and findings to Prometheus at an address: HOST:PORT, :PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    metrics: Option<Address>,
    /// Take over from the watch that listens at --listen, with no moment without a socket; it finishes its calls and ends
    #[arg(long)]
    replace: bool,
    /// Tell only what is broken
    #[arg(short, long)]
    quiet: bool,
}

/// The time for the driver to answer GetPluginInfo.
const ANSWER: Duration = Duration::from_secs(10);

/// The time for calls to end after the proxy has stopped to accept new ones.
const LAST_CALLS: Duration = Duration::from_secs(20);

/// The time for idle callers to close their connections.
const LEAVE: Duration = Duration::from_secs(2);

/// The longest delay before a mount outside of calls is printed.
const GLANCE: Duration = Duration::from_millis(250);

pub(super) fn run(flags: &Flags, colour: bool) -> Result<u8, Exit> {
    look(flags)?;
    under_ledger(async |ledger| watch(flags, colour, ledger).await)
}

/// Checks the flags before anything is started.
fn look(flags: &Flags) -> Result<(), Exit> {
    if !flags.root.is_dir() {
        return Err(Exit::usage(format!("there is no directory `{}`", flags.root.display()))
            .hint("--root is where the node keeps its volumes"));
    }
    if let Err(error) = UnixStream::connect(&flags.socket) {
        return Err(Exit::environment(format!("no driver answers at `{}`", flags.socket.display()))
            .details([error.to_string()]));
    }
    let is_driver = flags.listen.canonicalize().ok() == flags.socket.canonicalize().ok();
    let takes_over = flags.replace && !is_driver && UnixStream::connect(&flags.listen).is_ok();
    if flags.listen.exists() && !proxy::is_abandoned(&flags.listen) && !takes_over {
        return Err(Exit::usage(format!("`{}` is in use", flags.listen.display())).hint(
            "--listen is a new path, beside the driver's own socket; --replace takes over from another watch",
        ));
    }
    Ok(())
}

async fn watch(flags: &Flags, colour: bool, ledger: &Ledger) -> Result<u8, Exit> {
    // Without links, as in the mount table.
    let root = flags.root.canonicalize().map_err(anyhow::Error::from)?;
    let name = name_of(&flags.socket).await?;
    let earlier = volumes_on(&root, &name);
    let mounts = MountWatch::start().map_err(|error| {
        Exit::environment("cannot watch mounts").details(chain(&error)).hint("it needs root")
    })?;
    let symbols = Symbols::new(Layout::new(&root, &root));
    let journal = Journal::new(symbols, Some(Box::new(mounts)));
    journal.follow_node();
    if let Some(trace) = &flags.trace {
        let limits = flags.trace_size.map(|bytes| Limits { bytes, earlier: flags.trace_files });
        journal.keep(trace, limits).map_err(anyhow::Error::from)?;
    }
    ledger.will_listen(&flags.listen)?;
    let options = ProxyOptions {
        listen: flags.listen.clone(),
        driver: flags.socket.clone(),
        controller: None,
        ledger: None,
        replaces: flags.replace && UnixStream::connect(&flags.listen).is_ok(),
    };
    let proxy = Proxy::serve(options, journal.clone())
        .map_err(|error| Exit::environment("cannot listen").details(chain(&error)))?;
    note!("{}", printable(&head(&name, flags, &earlier)));

    let mut watched = Watched::new(root, earlier);
    let mut teller = Teller::new(&name, flags, colour, &journal)?;
    if let Some(address) = &flags.metrics {
        teller.metrics.clone().serve(address).await.map_err(|error| {
            Exit::environment("cannot listen for readers of --metrics").details([error.to_string()])
        })?;
    }
    let (mut printed, mut end, mut last_calls) = (0, std::pin::pin!(end()), None);
    loop {
        tokio::select! {
            biased;
            ended = &mut end, if last_calls.is_none() => {
                ended?;
                proxy.withdraw();
                proxy.dismiss();
                last_calls = Some((Deadline::after(LAST_CALLS), Deadline::after(LEAVE)));
            }
            _ = journal.wait(GLANCE, |journal| journal.length() > printed) => {}
        }
        let lines = journal.since_and_forget(printed);
        printed += lines.len();
        for line in lines {
            teller.metrics.count(&line);
            watched.take(line).iter().for_each(|news| teller.print(news));
        }
        teller.tell_secrets();
        if last_calls.is_none() && proxy.is_replaced() {
            note!("another watch listens at {} now", flags.listen.display());
            proxy.dismiss();
            last_calls = Some((Deadline::after(LAST_CALLS), Deadline::after(LEAVE)));
        }
        // Calls under way are answered, and callers know that they are to connect again, before connections are closed.
        let have_left = |leave: &Deadline| !proxy.has_callers() || leave.passed();
        let is_over = |(limit, leave): &(Deadline, Deadline)| {
            journal.in_flight().is_empty() && have_left(leave) || limit.passed()
        };
        if last_calls.as_ref().is_some_and(is_over) {
            break;
        }
    }
    drop(proxy);
    let judgement = watched.judgement();
    say!("\n{}", printable(&journal.masks().hide(&judgement.to_string())));
    let is_bad = judgement.is_bad() || !teller.secrets.is_empty();
    Ok(if is_bad { exit_code::CASES_FAILED } else { exit_code::OK })
}

/// A size such as 100MiB.
fn size(text: &str) -> Result<u64, String> {
    let size: harness::manifest::Size = text.parse().map_err(|error| format!("{error}"))?;
    if size.bytes() == 0 { Err("must be more than nothing".to_owned()) } else { Ok(size.bytes()) }
}

/// The driver's name, from GetPluginInfo.
async fn name_of(socket: &Path) -> Result<String, Exit> {
    let refused = |why: Vec<String>| {
        Exit::environment(format!("the driver at `{}` does not say its name", socket.display())).details(why)
    };
    let channel = proxy::connect(socket).map_err(|error| refused(chain(&error)))?;
    let mut identity = IdentityClient::new(channel);
    let asked = tokio::time::timeout(ANSWER, identity.get_plugin_info(GetPluginInfoRequest {}));
    let answer = asked.await.map_err(|_| refused(vec![format!("no answer in {} s", ANSWER.as_secs())]))?;
    Ok(answer.map_err(|status| refused(vec![status.to_string()]))?.into_inner().name)
}

fn head(name: &str, flags: &Flags, earlier: &BTreeSet<String>) -> String {
    let mut head = format!("watching {name} at {}; Ctrl-C ends it", flags.listen.display());
    if !earlier.is_empty() {
        head += &format!(
            "\nvolumes that were on the node before, whose calls are neither shown nor judged: {}",
            earlier.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        );
    }
    head
}

/// Prints news, counts them in the metrics, and writes findings to a file.
struct Teller {
    journal: Journal,
    metrics: Metrics,
    findings: Option<Findings>,
    /// Calls whose error repeated a secret, so that each is reported once.
    secrets: BTreeSet<(String, String)>,
    quiet: bool,
    red: anstyle::Style,
}

impl Teller {
    fn new(name: &str, flags: &Flags, colour: bool, journal: &Journal) -> Result<Self, Exit> {
        let open = |path: &PathBuf| {
            Findings::open(path, name).map_err(|error| {
                Exit::usage(format!("cannot write `{}`", path.display())).details([error.to_string()])
            })
        };
        Ok(Self {
            journal: journal.clone(),
            metrics: Metrics::of(name),
            findings: flags.findings.as_ref().map(open).transpose()?,
            secrets: BTreeSet::new(),
            quiet: flags.quiet,
            red: if colour { anstyle::AnsiColor::Red.on_default().bold() } else { anstyle::Style::new() },
        })
    }

    fn print(&mut self, news: &News) {
        let hide = |text: &str| printable(&self.journal.masks().hide(text)).into_owned();
        let mut out = terminal::out();
        // If the output is closed, the exit code still reports broken promises.
        drop(match news {
            News::Happened(_) if self.quiet => Ok(()),
            News::Happened(line) => writeln!(out, "{}", hide(line)),
            News::Broken(violation) => {
                self.metrics.broken(violation);
                if let Some(findings) = &mut self.findings {
                    findings.write(violation, hide);
                }
                let red = self.red;
                writeln!(out, "{red}    BROKEN{red:#}  {}", hide(&words(violation)))
            }
        });
    }

    fn tell_secrets(&mut self) {
        for secret in self.journal.leaked_secrets() {
            if !self.secrets.contains(&secret) {
                self.print(&News::secret_repeated(&secret.0, &secret.1));
                self.secrets.insert(secret);
            }
        }
    }
}

/// Returns when the user ends the watch.
async fn end() -> Result<(), Exit> {
    let mut terminated = signal(SignalKind::terminate()).map_err(anyhow::Error::from)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map_err(anyhow::Error::from)?),
        _ = terminated.recv() => Ok(()),
    }
}
