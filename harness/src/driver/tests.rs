//! Faulty drivers, as shell scripts, each with an error of its own.

use std::os::unix::fs::PermissionsExt;
use std::task::{Context, Poll};

use csi_proto::v1;
use csi_proto::v1::identity_server::{Identity, IdentityServer};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Request, Response, Status};

use super::*;
use crate::chore::Chore;
use crate::symbols::Symbols;

fn options(directory: &Path, command: &str) -> DriverOptions {
    let mut manifest = Manifest::from_command(command).unwrap();
    manifest.timeouts.start = "300ms".parse().unwrap();
    let layout = Layout::new(directory.join("kl"), directory.join("vp"));
    DriverOptions {
        manifest,
        layout,
        node: "node-1".into(),
        log: directory.join("driver.log"),
        other_controller: None,
        variables: Default::default(),
        cgroup: None,
    }
}

async fn start(options: DriverOptions) -> Result<Driver, DriverError> {
    let journal = Journal::new(Symbols::new(options.layout.clone()), None);
    Driver::start(options, journal).await
}

#[tokio::test]
async fn driver_runs_in_the_directory_of_its_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), "sh -c 'echo runs in $PWD; exit 3' {endpoint}");
    options.manifest.directory = Some("{state}".into());
    let state = options.layout.driver_state().display().to_string();
    let error = start(options.clone()).await.unwrap_err();
    assert_eq!(error.tail(), [format!("runs in {state}")], "{error}");
    options.manifest.directory = Some("/no/such/place".into());
    let error = start(options).await.unwrap_err();
    assert!(error.to_string().contains("the directory that it runs in, `/no/such/place`"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("prepare")));
}

#[tokio::test]
async fn variables_of_the_manifest_win_over_those_of_the_case() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), "sh -c 'echo $A $B; exit 3' {endpoint}");
    options.variables = [("A", "case"), ("B", "case")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    options.manifest.env = [("B".to_owned(), "own {node}".to_owned())].into();
    let error = start(options).await.unwrap_err();
    assert_eq!(error.tail(), ["case own node-1"], "{error}");
}

#[tokio::test]
async fn a_command_that_does_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let error = start(options(directory.path(), "/no/such/driver --endpoint={endpoint}")).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start the driver: there is no command `/no/such/driver`");
}

#[tokio::test]
async fn a_file_that_is_no_program() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("driver");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = start(options(directory.path(), &file.to_string_lossy())).await.unwrap_err();
    assert!(matches!(error, DriverError::Start { .. }), "{error}");
}

#[tokio::test]
async fn exit_of_a_driver_is_reported_with_its_last_words() {
    let directory = tempfile::tempdir().unwrap();
    let command = "sh -c 'echo first; echo cannot find my license >&2; exit 3'";
    let error = start(options(directory.path(), command)).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot use the driver: it exited at once (status 3)");
    assert_eq!(error.tail(), ["first", "cannot find my license"]);
}

#[test]
fn driver_that_is_only_slow_has_not_ended() {
    let (within, tail) = (Duration::from_secs(10), vec!["waiting".to_owned()]);
    let slow = DriverError::NotReady { within, source: None, tail: tail.clone() };
    assert!(!slow.has_ended());
    let late = Late { waited: within * 3, load: 12.0, is_cut_short: true };
    let busy = DriverError::Overloaded { late, source: Box::new(slow) };
    assert!(!busy.has_ended());
    assert_eq!(busy.tail(), ["waiting"]);
    assert!(busy.to_string().contains("the machine was overloaded: for 30 s"), "{busy}");
    assert!(
        busy.hint().is_some_and(|hint| hint.contains("--start-timeout")),
        "the driver may be slow as well"
    );
    assert!(DriverError::Exited { exit: Exit::Status(1), tail }.has_ended());
}

#[tokio::test]
async fn a_driver_that_never_opens_its_socket_is_killed_with_all_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("pid");
    let command = format!("sh -c 'sleep 1000 & echo $! > {}; wait'", mark.display());
    let error = start(options(directory.path(), &command)).await.unwrap_err();
    // The machine may be too busy for this to show.
    let error = match error {
        DriverError::Overloaded { source, .. } => *source,
        error => error,
    };
    assert!(matches!(error, DriverError::NoSocket { .. }), "{error}");
    let pid: i32 = fs::read_to_string(mark).unwrap().trim().parse().unwrap();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process ends some time after the signal is sent, and then its parent has to reap it.
    while !state().is_empty() && !state().contains(") Z ") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn driver_that_got_its_socket_is_given_more_time() {
    let directory = tempfile::tempdir().unwrap();
    for (command, hint) in [
        ("sleep 1000", "add `{socket}` or `{endpoint}`"),
        ("sh -c 'sleep 1000' {socket}", "--start-timeout 60s"),
    ] {
        let error = start(options(directory.path(), command)).await.unwrap_err();
        assert!(error.hint().is_some_and(|given| given.contains(hint)), "{command}: {error}");
    }
}

#[tokio::test]
async fn driver_that_does_not_find_a_file_is_told_where_it_starts() {
    let directory = tempfile::tempdir().unwrap();
    let error = start(options(directory.path(), "cat no-such-driver.py")).await.unwrap_err();
    assert!(matches!(error, DriverError::Exited { .. }), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("directory = ")), "{:?}", error.hint());
}

#[test]
fn exit_is_described_in_two_words() {
    assert_eq!(Exit::Signal(9).to_string(), "signal 9");
    assert_eq!(Exit::Status(1).to_string(), "status 1");
}

/// A plugin that is named, and has no service but Identity, of which `Probe` is missing.
struct Named(&'static str);

#[tonic::async_trait]
impl Identity for Named {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        Ok(Response::new(v1::GetPluginInfoResponse { name: self.0.to_owned(), ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Err(Status::unimplemented("no Probe"))
    }
}

/// The wrong answers of a driver that serves Identity only.
async fn wrong_answers(name: &'static str) -> Vec<String> {
    wrong_answers_of(IdentityServer::new(Named(name))).await
}

/// An Identity service with the names of CSI 0.
#[derive(Clone)]
struct Older(IdentityServer<Named>);

impl tonic::server::NamedService for Older {
    const NAME: &'static str = "csi.v0.Identity";
}

impl tower::Service<http::Request<Body>> for Older {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = <IdentityServer<Named> as tower::Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        tower::Service::<http::Request<Body>>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().replace("csi.v0.", "csi.v1.");
        *request.uri_mut() = path.parse().expect("a path");
        self.0.call(request)
    }
}

/// The wrong answers of a driver with one service.
async fn wrong_answers_of<S>(service: S) -> Vec<String>
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible>
        + tonic::server::NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("csi.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let server = tonic::transport::Server::builder().add_service(service);
    let server = tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    let mut options = options(directory.path(), "unused");
    options.manifest = Manifest::from_socket(&socket);
    let error = start(options).await.unwrap_err();
    server.abort();
    let DriverError::Answers { wrong, .. } = error else { panic!("{error}") };
    let line =
        |answer: &WrongAnswer| format!("{} {answer}", answer.promise.as_deref().unwrap_or("no promise"));
    wrong.iter().map(line).collect()
}

#[tokio::test]
async fn each_unimplemented_call_is_named_with_what_requires_it() {
    assert_eq!(
        wrong_answers("csi.example.com").await,
        [
            "DRV-007 Probe: not implemented; CSI requires it of every plugin (no Probe)",
            "DRV-007 NodeGetCapabilities: not implemented; CSI requires it of every node plugin",
            "no promise NodeGetInfo: not implemented; CSI lets it out, but the kubelet registers no driver without it",
        ]
    );
}

#[tokio::test]
async fn driver_of_an_older_csi_is_told_its_version_alone() {
    let older = Older(IdentityServer::new(Named("csi.example.com")));
    assert_eq!(
        wrong_answers_of(older).await,
        [
            "DRV-007 the driver serves CSI 0 (csi.v0.Identity), which is another protocol; Kubernetes speaks CSI 1 (csi.v1.Identity)"
        ]
    );
}

#[tokio::test]
async fn name_that_is_a_path_is_refused_before_it_is_used() {
    let wrong = wrong_answers("../../../../../tmp/somewhere/x").await;
    assert_eq!(
        wrong[0],
        "DRV-001 GetPluginInfo: the plugin's name is no domain name (\"../../../../../tmp/somewhere/x\")"
    );
}

fn chore(directory: &Path, command: &str) -> Chore {
    Chore {
        key: "per_case.prepare".to_owned(),
        command: ["sh", "-c", command].map(str::to_owned).into(),
        env: [("A".to_owned(), "b".to_owned())].into(),
        directory: directory.to_owned(),
        log: directory.join("prepare.log"),
        within: Duration::from_secs(60),
    }
}

#[test]
fn failed_command_is_reported_with_its_last_words() {
    let directory = tempfile::tempdir().unwrap();
    chore(directory.path(), "test $A = b && touch here").run().unwrap();
    assert!(directory.path().join("here").exists());
    let error = chore(directory.path(), "echo no space >&2; exit 5").run().unwrap_err();
    assert_eq!(
        error.to_string(),
        "per_case.prepare of the manifest ended with status 5: `sh -c 'echo no space >&2; exit 5'`"
    );
    assert_eq!(error.tail(), ["no space"]);
}

#[test]
fn command_is_killed_at_its_limit_with_what_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Chore { within: Duration::from_millis(200), ..chore(directory.path(), "sleep 1000 & wait") };
    let error = slow.run().unwrap_err();
    assert!(error.to_string().contains("did not end within 0.2 s"), "{error}");
}

#[test]
fn janitor_runs_each_cleanup_that_is_owed_and_no_other() {
    use crate::ledger::{Entry, Run, RunDirectory};
    let base = tempfile::tempdir().unwrap();
    let run = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
    let mark = |name: &str| {
        let mark = base.path().join(name);
        // Neither its directory nor its log is there any more.
        Chore {
            command: ["touch", mark.to_str().unwrap()].map(str::to_owned).into(),
            ..chore(Path::new("/no/such/directory"), "")
        }
    };
    for (id, name) in [("1", "first"), ("2", "second")] {
        run.ledger().record(&Entry::Prepared { id: id.to_owned(), cleanup: mark(name) }).unwrap();
    }
    run.ledger().record(&Entry::CleanedUp { id: "1".to_owned() }).unwrap();
    drop(run.end());
    let swept = crate::janitor::sweep_in(base.path()).unwrap();
    assert_eq!(swept[0].undone.left, Vec::<String>::new());
    assert!(base.path().join("second").exists() && !base.path().join("first").exists());
}
