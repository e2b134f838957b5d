//! The user and the privileges of a container, and its OCI configuration.

use api::pod::SeLinuxOptions;
use api::runtime::{Confinement, Port, Powers, Profile};

use super::*;
use crate::container::oci::{self, Bundle};
use crate::container::security::Scope;

fn bundle() -> Bundle {
    Bundle { rootfs: "/rootfs".into(), command: vec!["sh".into()], args: vec!["-l".into()], group: 9 }
}

#[tokio::test]
async fn container_settings_override_the_pods() {
    let Some(mut scene) = Scene::set().await else { return };
    let label = |level: &str| SeLinuxOptions { level: level.into(), ..SeLinuxOptions::default() };
    let security = scene.configure().await.unwrap().security;
    assert_eq!((security.group, security.selinux), (None, None));
    assert_eq!((security.seccomp, security.apparmor), (Profile::Unconfined, Profile::RuntimeDefault));
    assert_eq!(security.namespaces.pid, Scope::Container);

    let named = |name: &str| Some(Profile::Localhost(name.into()));
    let pods = Confinement {
        run_as_group: Some(5),
        run_as_non_root: None,
        seccomp: named("pods.json"),
        apparmor: named("pods"),
    };
    scene.bench.pod.security.confinement = pods;
    scene.bench.pod.security.supplemental_groups_policy = "Strict".into();
    scene.bench.pod.security.selinux = Some(Box::new(label("s0:c1")));
    let security = scene.configure().await.unwrap().security;
    assert_eq!((security.group, security.supplemental_groups_policy.as_str()), (Some(5), "Strict"));
    let profile = scene.bench.path("seccomp/pods.json").display().to_string();
    assert_eq!((security.seccomp, security.apparmor), (Profile::Localhost(profile), named("pods").unwrap()));
    assert_eq!(security.selinux, Some(label("s0:c1")));

    let own = Confinement {
        run_as_group: Some(6),
        run_as_non_root: None,
        seccomp: Some(Profile::RuntimeDefault),
        apparmor: Some(Profile::Unconfined),
    };
    scene.container.confinement = own;
    scene.container.selinux = Some(Box::new(label("s0:c2")));
    scene.container.powers = Powers { no_new_privileges: true, read_only_root: true, ..Powers::default() };
    let security = scene.configure().await.unwrap().security;
    assert_eq!((security.group, security.selinux), (Some(6), Some(label("s0:c2"))));
    assert_eq!((security.seccomp, security.apparmor), (Profile::RuntimeDefault, Profile::Unconfined));
    assert!(security.no_new_privileges && security.read_only_root);
}

#[tokio::test]
async fn the_privileged_is_confined_by_nothing() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.container.confinement.seccomp = Some(Profile::RuntimeDefault);
    scene.container.confinement.apparmor = Some(Profile::Localhost("own".into()));
    scene.container.selinux = Some(Box::new(SeLinuxOptions::default()));
    let hides = |config: &ContainerConfig| {
        let security = &config.security;
        (security.masked_paths.iter().any(|path| path == "/proc/kcore"), security.read_only_paths.len())
    };
    assert_eq!(hides(&scene.configure().await.unwrap()), (true, 5));
    scene.container.powers.unmasked_proc = true;
    assert_eq!(hides(&scene.configure().await.unwrap()), (false, 0));
    scene.container.powers.unmasked_proc = false;
    scene.container.privileged = true;
    let config = scene.configure().await.unwrap();
    assert_eq!(hides(&config), (false, 0));
    let security = config.security;
    assert_eq!((security.seccomp, security.apparmor), (Profile::Unconfined, Profile::Unconfined));
    assert_eq!((security.selinux, security.capabilities.len()), (None, 41));
}

#[tokio::test]
async fn the_privileged_may_use_every_device() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    for privileged in [false, true] {
        scene.container.privileged = privileged;
        let config = scene.configure().await.unwrap();
        let json = serde_json::to_value(oci::spec(&*host, &config, &bundle()).await.unwrap()).unwrap();
        let rules = json["linux"]["resources"]["devices"].as_array().unwrap();
        assert_eq!(
            (rules.len(), &rules[0]["allow"], &rules[0]["access"]),
            (1, &privileged.into(), &"rwm".into())
        );
        let sys =
            json["mounts"].as_array().unwrap().iter().find(|mount| mount["destination"] == "/sys").unwrap();
        let writable = sys["options"].as_array().unwrap().contains(&"rw".into());
        assert_eq!(writable, privileged, "{sys}");
    }
}

/// The temperature of a processor reveals the work of other containers.
#[tokio::test]
async fn no_container_sees_how_hot_the_processors_are() {
    let (bench, host) = Bench::simulated();
    for name in ["cpu0", "cpu1", "cpufreq", "online"] {
        host.kernel()
            .make_dir_all(&std::path::Path::new("/sys/devices/system/cpu").join(name), 0o755)
            .unwrap();
    }
    let container = Container { name: "main".into(), ..Container::default() };
    let services = Services::fixed([]);
    let scene = Scene { bench, container, image_user: User::Unknown, volumes: BTreeMap::new(), services };
    let masked = scene.configure().await.unwrap().security.masked_paths;
    let hot: Vec<&String> = masked.iter().filter(|path| path.contains("cpu")).collect();
    let of = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
    assert_eq!(hot, [&of(0), &of(1)]);
}

#[tokio::test]
async fn run_as_non_root_needs_a_numeric_user() {
    let Some(mut scene) = Scene::set().await else { return };
    assert!(scene.configure().await.is_ok(), "root is no sin");
    scene.bench.pod.security.confinement.run_as_non_root = Some(true);
    let error = scene.configure().await.unwrap_err().to_string();
    assert_eq!(error, "container has runAsNonRoot and image will run as root");
    scene.container.confinement.run_as_non_root = Some(false);
    assert!(scene.configure().await.is_ok(), "the container knows better");
    scene.container.confinement.run_as_non_root = None;
    scene.image_user = User::Name("www".into());
    assert!(scene.configure().await.unwrap_err().to_string().contains("non-numeric user (www)"));
    scene.container.run_as_user = Some(7);
    assert_eq!(scene.configure().await.unwrap().security.user, User::Number(7));
}

#[tokio::test]
async fn a_runtime_reads_it_as_a_config_json() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    scene.bench.pod.security.fs_group = Some(5);
    scene.container.environment.push(Variable::text("NAME", "mine"));
    scene.container.devices = vec![VolumeDevice { volume: "disk".into(), path: "/dev/xvda".into() }];
    let mut disk = volume(PathBuf::new());
    (disk.plugin, disk.inner, disk.read_only) = ("kubernetes.io/csi".into(), "pv".into(), true);
    scene.volumes.insert("disk".into(), disk);
    let dir = scene.bench.path("pods/u1/volumeDevices/kubernetes.io~csi");
    host.make_dir_all(&dir, 0o750).await.unwrap();
    host.symlink(std::path::Path::new("/dev/null"), &dir.join("pv")).await.unwrap();
    scene.mount(|mount| {
        mount.read_only = true;
        mount.recursive_read_only = "Enabled".into();
    });

    let config = scene.configure().await.unwrap();
    let spec = oci::spec(&*host, &config, &bundle()).await.unwrap();
    let json = serde_json::to_value(&spec).unwrap();
    let volume = &json["mounts"].as_array().unwrap()[5];
    assert_eq!(volume["destination"], "/data");
    assert_eq!(volume["options"], serde_json::json!(["rbind", "rprivate", "rro"]));
    let device = &json["linux"]["devices"][0];
    assert_eq!((&device["path"], &device["type"]), (&"/dev/xvda".into(), &"c".into()));
    assert_eq!((&device["major"], &device["minor"]), (&1.into(), &3.into()));
    let rules = json["linux"]["resources"]["devices"].as_array().unwrap();
    assert_eq!((&rules[0]["allow"], &rules[0]["access"]), (&false.into(), &"rwm".into()));
    assert_eq!((&rules[1]["allow"], &rules[1]["access"]), (&true.into(), &"r".into()));
    assert_eq!(json["process"]["user"]["additionalGids"], serde_json::json!([5, 77]));
    assert_eq!(json["process"]["env"], serde_json::json!(["NAME=mine"]));
    let seen = oci::destinations(&spec);
    assert_eq!(seen, ["/data", "/etc/hosts"].map(std::path::Path::new));
}

#[tokio::test]
async fn a_runtime_reads_who_it_is_and_what_it_may() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    let plain = oci::spec(&*host, &scene.configure().await.unwrap(), &bundle()).await.unwrap();
    let process = plain.process().as_ref().unwrap();
    assert_eq!((process.user().uid(), process.user().gid()), (0, 9), "the image's");
    assert_eq!((process.no_new_privileges(), process.terminal()), (Some(false), Some(false)));
    assert_eq!((process.apparmor_profile(), process.selinux_label()), (&None, &None));
    assert_eq!(plain.root().as_ref().unwrap().readonly(), Some(false));
    let namespaces = plain.linux().as_ref().unwrap().namespaces().as_ref().unwrap().len();

    scene.container.run_as_user = Some(7);
    scene.container.confinement.run_as_group = Some(8);
    scene.container.confinement.apparmor = Some(Profile::Localhost("tight".into()));
    let [user, role, kind, level] = ["u", "r", "t", "s0:c1,c2"].map(str::to_owned);
    scene.container.selinux = Some(Box::new(SeLinuxOptions { user, role, kind, level }));
    scene.container.powers = Powers {
        add: vec!["NET_ADMIN".into()],
        drop: vec!["ALL".into()],
        no_new_privileges: true,
        read_only_root: true,
        unmasked_proc: false,
    };
    (scene.bench.pod.host_pid, scene.bench.pod.host_ipc) = (true, true);
    (scene.container.program.tty, scene.container.program.working_dir) = (true, "/srv".into());
    scene.container.ports = vec![Port { container_port: 80, ..Port::default() }];
    let config = scene.configure().await.unwrap();
    assert_eq!(config.ports, scene.container.ports);
    let spec = oci::spec(&*host, &config, &bundle()).await.unwrap();
    let json = serde_json::to_value(&spec).unwrap();
    let process = &json["process"];
    assert_eq!((&process["user"]["uid"], &process["user"]["gid"]), (&7.into(), &8.into()));
    assert_eq!((&process["noNewPrivileges"], &process["terminal"]), (&true.into(), &true.into()));
    assert_eq!(
        (&process["apparmorProfile"], &process["selinuxLabel"]),
        (&"tight".into(), &"u:r:t:s0:c1,c2".into())
    );
    assert_eq!((&process["cwd"], &json["root"]["readonly"]), (&"/srv".into(), &true.into()));
    for set in ["bounding", "effective", "permitted"] {
        assert_eq!(process["capabilities"][set], serde_json::json!(["CAP_NET_ADMIN"]), "{set}");
    }
    assert_eq!(json["linux"]["namespaces"].as_array().unwrap().len(), namespaces - 2);
    // The annotations are passed on unchanged.
    let kept = json["annotations"].as_object().unwrap();
    assert_eq!(kept["io.kubernetes.container.restartCount"], "2");
    assert_eq!(kept["io.kubernetes.pod.uid"], "u1");
    assert_eq!(kept.len(), config.labels.len() + config.annotations.len());
}

#[tokio::test]
async fn a_command_of_its_own_goes_without_the_images_arguments() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    scene.container.environment.push(Variable::text("NAME", "mine"));
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for (command, args, run) in [
        (&[][..], &[][..], &["sh", "-l"][..]),
        (&[], &["$(NAME)"], &["sh", "mine"]),
        (&["$(NAME)", "$(NOPE)"], &[], &["mine", "$(NOPE)"]),
        (&["run"], &["$(NAME)"], &["run", "mine"]),
    ] {
        (scene.container.program.command, scene.container.program.args) = (words(command), words(args));
        let spec = oci::spec(&*host, &scene.configure().await.unwrap(), &bundle()).await.unwrap();
        assert_eq!(spec.process().as_ref().unwrap().args(), &Some(words(run)));
    }
}

#[tokio::test]
async fn user_name_that_the_image_does_not_have_is_refused() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    for (user, group, refused) in [
        (User::Name("www".into()), None, Some("cannot run as `www`: the image has no user of this name")),
        (User::Unknown, Some(5), Some("cannot run as a group without a user")),
        (User::Unknown, None, None),
        (User::Number(3), Some(5), None),
    ] {
        (scene.image_user, scene.container.confinement.run_as_group) = (user, group);
        let spec = oci::spec(&*host, &scene.configure().await.unwrap(), &bundle()).await;
        assert_eq!(spec.err().map(|error| error.to_string()).as_deref(), refused);
    }
}
