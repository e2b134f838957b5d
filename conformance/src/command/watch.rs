//! `volproof watch`: the promises, held against a node and a driver that run already.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use csi_proto::v1::GetPluginInfoRequest;
use csi_proto::v1::identity_client::IdentityClient;
use harness::Layout;
use harness::journal::Journal;
use harness::masks::Masks;
use harness::observe::MountWatch;
use harness::printable::printable;
use harness::proxy::{self, Proxy, ProxyOptions};
use harness::symbols::Symbols;
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, under_ledger};
use crate::watch::{News, Watched, volumes_on};
use runner::dispatch::Ledger;
use runner::exit_code;
use testbed::failure::chain;

/// Stand between a node and a driver that run already, tell what passes, and judge it.
#[derive(Debug, Args)]
#[command(after_help = "\
The node must be told of the socket of --listen instead of the driver's own: with node-driver-registrar that is
--kubelet-registration-path. Ctrl-C ends it.

Exit codes: 0 nothing was broken; 1 something was; 2 command line; 4 it could not begin.")]
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
    /// Tell only what is broken
    #[arg(short, long)]
    quiet: bool,
}

/// How long the driver may take to say its name.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a mount that no call is about waits until it is told.
const GLANCE: Duration = Duration::from_millis(250);

pub(super) fn run(flags: &Flags, colour: bool) -> Result<u8, Exit> {
    look(flags)?;
    under_ledger(async |ledger| watch(flags, colour, ledger).await)
}

/// What is wrong before anything is begun.
fn look(flags: &Flags) -> Result<(), Exit> {
    if !flags.root.is_dir() {
        return Err(Exit::usage(format!("there is no directory `{}`", flags.root.display()))
            .hint("--root is where the node keeps its volumes"));
    }
    if let Err(error) = UnixStream::connect(&flags.socket) {
        return Err(Exit::environment(format!("no driver answers at `{}`", flags.socket.display()))
            .details([error.to_string()]));
    }
    if flags.listen.exists() && !proxy::is_abandoned(&flags.listen) {
        return Err(Exit::usage(format!("`{}` is in use", flags.listen.display()))
            .hint("--listen is a new path, beside the driver's own socket"));
    }
    Ok(())
}

async fn watch(flags: &Flags, colour: bool, ledger: &Ledger) -> Result<u8, Exit> {
    // As the mount table has it.
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
        journal.keep(trace).map_err(anyhow::Error::from)?;
    }
    ledger.will_listen(&flags.listen)?;
    let options = ProxyOptions {
        listen: flags.listen.clone(),
        driver: flags.socket.clone(),
        controller: None,
        ledger: None,
    };
    let proxy = Proxy::serve(options, journal.clone())
        .map_err(|error| Exit::environment("cannot listen").details(chain(&error)))?;
    eprintln!("{}", printable(&head(&name, flags, &earlier)));

    let mut watched = Watched::new(root, earlier);
    let (mut told, mut end, mut secrets) = (0, std::pin::pin!(end()), BTreeSet::new());
    loop {
        let ended = tokio::select! {
            biased;
            ended = &mut end => { ended?; true }
            _ = journal.wait(GLANCE, |journal| journal.length() > told) => false,
        };
        let lines = journal.since(told);
        told += lines.len();
        let news = lines.into_iter().flat_map(|line| watched.take(line));
        news.for_each(|news| tell(&news, journal.masks(), flags.quiet, colour));
        for secret in journal.told_secrets() {
            if !secrets.contains(&secret) {
                tell(&News::secret_repeated(&secret.0, &secret.1), journal.masks(), flags.quiet, colour);
                secrets.insert(secret);
            }
        }
        if ended {
            break;
        }
    }
    drop(proxy);
    let judgement = watched.judgement();
    println!("\n{}", printable(&journal.masks().hide(&judgement.to_string())));
    Ok(if judgement.is_bad() || !secrets.is_empty() { exit_code::CASES_FAILED } else { exit_code::OK })
}

/// What the driver calls itself.
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
            "\nvolumes that were on the node before, whose calls are neither told nor judged: {}",
            earlier.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        );
    }
    head
}

fn tell(news: &News, masks: &Masks, quiet: bool, colour: bool) {
    let red = match colour {
        true => anstyle::AnsiColor::Red.on_default().bold(),
        false => anstyle::Style::new(),
    };
    let mut out = std::io::stdout().lock();
    let (News::Happened(words) | News::Broken(words)) = news;
    let words = masks.hide(words);
    let words = printable(&words);
    // Whoever has closed the output still gets the exit code.
    drop(match news {
        News::Happened(_) if quiet => Ok(()),
        News::Happened(_) => writeln!(out, "{words}"),
        News::Broken(_) => writeln!(out, "{red}    BROKEN{red:#}  {words}"),
    });
}

/// Somebody has seen enough.
async fn end() -> Result<(), Exit> {
    let mut terminated = signal(SignalKind::terminate()).map_err(anyhow::Error::from)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map_err(anyhow::Error::from)?),
        _ = terminated.recv() => Ok(()),
    }
}
