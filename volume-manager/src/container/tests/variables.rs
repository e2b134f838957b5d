//! The environment of a container, with secret values that are masked when it is printed.

use api::environment::{Holder, HolderKind, Import, Origin};
use api::{Meta, Resource, Secret, Sensitive, Service};

use super::*;
use crate::container::oci::{self, Bundle};

#[tokio::test]
async fn services_of_the_namespace_are_variables_once_they_were_read() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.services = Services::unread();
    let refused = scene.configure().await.unwrap_err().to_string();
    assert_eq!(refused, "services have not yet been read at least once, cannot construct envvars");

    let service = |namespace: &str, name: &str| {
        let (meta, address) = (Meta::named(namespace, name), "10.0.0.9".into());
        Service { meta, address, ..Service::default() }
    };
    scene.services = Services::fixed([
        service("default", "kubernetes"),
        service("default", "web"),
        service("other", "far"),
    ]);
    for (without, expected) in [
        (false, &["KUBERNETES_SERVICE_HOST=10.0.0.9", "WEB_SERVICE_HOST=10.0.0.9"][..]),
        (true, &["KUBERNETES_SERVICE_HOST=10.0.0.9"]),
    ] {
        scene.bench.pod.without_services = without;
        let config = scene.configure().await.unwrap();
        let bundle = Bundle { rootfs: "/rootfs".into(), command: vec!["sh".into()], args: vec![], group: 0 };
        let spec = oci::spec(&*scene.bench.context.host, &config, &bundle).await.unwrap();
        let expected: Vec<String> = expected.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(spec.process().as_ref().unwrap().env(), &Some(expected));
    }
}

#[tokio::test]
async fn secret_value_is_not_shown() {
    let Some(mut scene) = Scene::set().await else { return };
    let data = [("word".into(), Sensitive::new(b"open-sesame".to_vec()))].into();
    scene.bench.put(Secret { meta: Meta::named("default", "keys"), data }.into_object());
    let keys = || Holder { kind: HolderKind::Secret, name: "keys".into(), optional: false };
    scene.container.imports.push(Import { holder: keys(), prefix: "ALL_".into() });
    let origin = Origin::Key(keys(), "word".into());
    scene.container.environment.push(Variable { name: "WORD".into(), origin });
    scene.container.environment.push(Variable::text("URL", "https://me:$(WORD)@web"));
    scene.container.program.args = vec!["--password=$(WORD)".into()];
    let config = scene.configure().await.unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains("URL") && !shown.contains("sesame"), "{shown}");
    // Only the printed form is masked.
    assert_eq!(config.environment["URL"].reveal(), "https://me:open-sesame@web");
    assert_eq!(config.environment["ALL_word"].reveal(), "open-sesame");
    assert_eq!(config.program.reveal().args, ["--password=open-sesame"]);
}
