//! Pods are followed for ever, and failed waits have events.

use api::Meta;
use api::clock::AdvancingClock;
use api::kept_tokens::KeptTokens;
use contracts::event::Client;
use host::fake::{FakeHost, FakeKernel};
use volume_manager::container::services::Services;
use volume_manager::plugin::csi::socket::SocketDialer;
use volume_manager::plugin::registry;
use volume_manager::{ClientStyle, Config, Parts, VolumeManager};

use super::*;
use crate::Layout;
use crate::api_server::{ApiServer, NAMESPACE};
use crate::journal::Journal;
use crate::node::protocol::Settings;
use crate::symbols::Symbols;

const NODE: &str = "here";
/// Longer than a watch that was hung up takes to be begun again.
const LATER: Duration = Duration::from_secs(5);

fn api_server() -> ApiServer {
    ApiServer::new(Journal::new(Symbols::new(Layout::standard()), None))
}

fn surroundings(api: &ApiServer) -> Surroundings {
    let layout = Layout::standard();
    let settings = Settings {
        root: layout.root().to_string_lossy().into_owned(),
        state: layout.state().to_string_lossy().into_owned(),
        other_roots: Vec::new(),
        name: NODE.to_owned(),
        client_style: ClientStyle::Kubelet,
        status_period: LATER,
        call_deadline: LATER,
        sweep: false,
        prompt_status: false,
        pod_events: false,
        resync: false,
        measure: false,
        keep_tokens: false,
    };
    let clock = AdvancingClock::default();
    let host: Arc<dyn host::Host> = Arc::new(FakeHost::new(FakeKernel::new()));
    let api = api.seen_by(Client::Node);
    let parts = Parts {
        api: Arc::clone(&api),
        host: Arc::clone(&host),
        clock: Arc::new(clock.clone()),
        dialer: Arc::new(SocketDialer),
        registry: registry::kubelet(),
        containers: None,
    };
    let manager = VolumeManager::start(Config::new(NODE, layout.root()), parts);
    let services = Services::fixed([]);
    let tokens = Arc::new(KeptTokens::new(Arc::clone(&api), Arc::new(clock.clone())));
    Surroundings { settings, layout, api, tokens, host, clock, services, manager }
}

fn create(api: &ApiServer, name: &str) -> PodUid {
    let pod = Pod { meta: Meta::named(NAMESPACE, name), node: NODE.to_owned(), ..Pod::default() };
    api.create(pod).unwrap().uid()
}

async fn wait_known(pods: &Pods, uids: &[&PodUid]) -> Result<(), String> {
    let versions = uids.iter().map(|uid| (uid.to_string(), String::new())).collect();
    pods.wait_known(&versions, LATER).await
}

#[tokio::test(start_paused = true)]
async fn pods_are_followed_after_a_watch_hang_up() {
    let api = api_server();
    let old = create(&api, "old");
    let pods = Pods::follow(surroundings(&api), BTreeSet::new()).await;
    wait_known(&pods, &[&old]).await.unwrap();
    api.hang_up(Kind::Pod);
    let new = create(&api, "new");
    wait_known(&pods, &[&old, &new]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_during_a_watch_hang_up_is_deleted() {
    let api = api_server();
    let [stays, goes] = ["stays", "goes"].map(|name| create(&api, name));
    let pods = Pods::follow(surroundings(&api), BTreeSet::new()).await;
    wait_known(&pods, &[&stays, &goes]).await.unwrap();
    api.hang_up(Kind::Pod);
    api.delete::<Pod>(NAMESPACE, "goes").unwrap();
    wait_known(&pods, &[&stays]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pod_replaced_by_its_namesake_during_a_watch_hang_up_is_deleted() {
    let api = api_server();
    let old = create(&api, "web");
    let pods = Pods::follow(surroundings(&api), BTreeSet::new()).await;
    wait_known(&pods, &[&old]).await.unwrap();
    api.hang_up(Kind::Pod);
    api.delete::<Pod>(NAMESPACE, "web").unwrap();
    let new = create(&api, "web");
    assert_ne!(old, new);
    wait_known(&pods, &[&new]).await.unwrap();
}

#[test]
fn failed_wait_has_an_event_unless_its_deadline_passed_or_its_pod_ended() {
    let wait = |cause| WaitError::NotMounted {
        unmounted: Vec::new(),
        unattached: Vec::new(),
        unprocessed: Vec::new(),
        cause,
    };
    assert!(has_event(&wait(WaitCause::Errors("the claim is gone".to_owned()))));
    assert!(!has_event(&wait(WaitCause::Deadline)));
    assert!(!has_event(&wait(WaitCause::Canceled)));
}
