//! The registry of the kubelet's plugins.

use std::sync::Arc;

use plugin_api::registry::Registry;

use super::config_map::ConfigMapSource;
use super::content::ContentPlugin;
use super::csi::CsiPlugin;
use super::downward_api::DownwardApiSource;
use super::empty_dir::EmptyDirPlugin;
use super::flex_volume::FlexVolumes;
use super::host_path::HostPathPlugin;
use super::image::ImagePlugin;
use super::local::LocalPlugin;
use super::nfs::NfsPlugin;
use super::projected::ProjectedSource;
use super::secret::SecretSource;

/// The kubelet's plugins, without those for in-tree volumes that need tools of their own (iSCSI, Fibre Channel) and those
/// that are migrated to CSI.
pub fn kubelet() -> Registry {
    Registry::new(vec![
        Arc::new(CsiPlugin::new()),
        Arc::new(EmptyDirPlugin),
        Arc::new(HostPathPlugin),
        Arc::new(NfsPlugin),
        Arc::new(LocalPlugin),
        Arc::new(ImagePlugin),
        Arc::new(ContentPlugin::<ConfigMapSource>::new()),
        Arc::new(ContentPlugin::<SecretSource>::new()),
        Arc::new(ContentPlugin::<DownwardApiSource>::new()),
        Arc::new(ContentPlugin::<ProjectedSource>::new()),
    ])
    .with_family(Arc::new(FlexVolumes::default()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use api::names::{PluginName, PodUid, SpecName};
    use api::pod::InlineCsi;
    use api::{CsiDriver, PersistentSource, PodVolume, Volume, VolumeMode, VolumeSource};
    use expect_test::expect;
    use host::Host;
    use plugin_api::{Facts, Found, Rebuilt, Scene, Spec};

    use super::*;
    use crate::plugin::testing::{Bench, persistent_spec};

    fn inline(source: VolumeSource) -> Spec {
        Spec::inline(Arc::new(PodVolume { name: "v".into(), source }))
    }

    fn persistent(source: PersistentSource) -> Spec {
        Spec::persistent(Arc::new(Volume { source, ..Volume::default() }), false)
    }

    #[test]
    fn each_kind_has_one_plugin_with_its_abilities() {
        let registry = kubelet();
        let content = api::pod::Content::default;
        let path = || "/x".to_owned();
        let rows = [
            (inline(VolumeSource::EmptyDir { medium: String::new(), size_limit: None }), "empty-dir", ""),
            (inline(VolumeSource::HostPath { path: path(), kind: String::new() }), "host-path", ""),
            (persistent(PersistentSource::HostPath { path: path(), kind: String::new() }), "host-path", ""),
            (inline(VolumeSource::Nfs { server: path(), path: path(), read_only: false }), "nfs", "options"),
            (
                persistent(PersistentSource::Nfs { server: path(), path: path(), read_only: false }),
                "nfs",
                "options",
            ),
            (
                persistent(PersistentSource::Local { path: path(), fs_type: String::new() }),
                "local-volume",
                "device map grow options",
            ),
            (inline(VolumeSource::ConfigMap(content())), "configmap", "remount"),
            (inline(VolumeSource::Secret(content())), "secret", "remount"),
            (
                inline(VolumeSource::Projected { sources: Vec::new(), default_mode: 0 }),
                "projected",
                "remount",
            ),
            (
                inline(VolumeSource::DownwardApi { items: Vec::new(), default_mode: 0 }),
                "downward-api",
                "remount",
            ),
            (persistent_spec("pv", "d", "h"), "csi", "attach device map grow options"),
            (inline(VolumeSource::Csi(InlineCsi::default())), "csi", "options"),
            (inline(VolumeSource::Image { reference: path(), pull_policy: String::new() }), "image", ""),
        ];
        // With every driver known, none attaches that does not say so.
        let facts = Facts { csi_drivers_known: true, ..Facts::default() };
        for (spec, name, abilities) in rows {
            let plugin = registry.pick(&spec).unwrap();
            assert_eq!(plugin.name().as_str(), format!("kubernetes.io/{name}"));
            let device = plugin.can_device_mount(&spec);
            let has = [
                (plugin.can_attach(&spec, &facts), "attach"),
                (device, "device"),
                (plugin.block_mapper().is_some() && device, "map"),
                (plugin.expander().is_some() && device, "grow"),
                (plugin.requires_remount(&spec, &facts), "remount"),
                (plugin.takes_mount_options(), "options"),
            ];
            let has: Vec<&str> = has.iter().filter(|(has, _)| *has).map(|(_, word)| *word).collect();
            assert_eq!(has.join(" "), abilities, "{name}");
        }
    }

    #[test]
    fn a_driver_says_whether_what_it_published_is_refreshed() {
        let registry = kubelet();
        for (republished, refreshed) in [(None, false), (Some(false), false), (Some(true), true)] {
            let mut facts = Facts::default();
            if let Some(requires_republish) = republished {
                let object = CsiDriver { requires_republish, ..CsiDriver::default() };
                facts.csi_drivers.insert("d".into(), Arc::new(object));
            }
            let csi = InlineCsi { driver: "d".into(), ..InlineCsi::default() };
            for spec in [persistent_spec("pv", "d", "h"), inline(VolumeSource::Csi(csi))] {
                let plugin = registry.pick(&spec).unwrap();
                assert_eq!(plugin.requires_remount(&spec, &facts), refreshed, "{republished:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_directory_of_a_pod_stands_for_the_volume_that_it_is_named_after() {
        let (bench, host) = Bench::simulated();
        let link = bench.path("pods/u1/volumeDevices/kubernetes.io~local-volume/pv");
        host.make_dir_all(link.parent().unwrap(), 0o750).await.unwrap();
        host.symlink(Path::new("/dev/disk"), &link).await.unwrap();
        let cx = &bench.context;
        let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
        let mut lines = String::new();
        for plugin in kubelet().all() {
            for mode in [VolumeMode::Filesystem, VolumeMode::Block] {
                let (pod, inner) = (PodUid::new("u1"), SpecName::new("pv"));
                let path = match mode {
                    VolumeMode::Filesystem => cx.paths.pod_volume(&pod, &plugin.name(), &inner),
                    VolumeMode::Block if plugin.block_mapper().is_none() => continue,
                    VolumeMode::Block => cx.paths.pod_device(&pod, &plugin.name(), &inner),
                };
                let found = Found { pod, plugin: plugin.name(), inner, path, mode };
                let text = match plugin.reconstruct(&scene, &found).await {
                    Ok(Rebuilt { spec, .. }) => match (spec.pod_volume(), spec.persistent_source()) {
                        (Some(volume), _) => format!("{:?}", volume.source),
                        (_, source) => format!("{:?} of {}", source, spec.name()),
                    },
                    Err(failure) => failure.chain().replace(&bench.path("").display().to_string(), ""),
                };
                lines += &format!("{} {mode}: {text}\n", plugin.name());
            }
        }
        expect![[r#"
            kubernetes.io/csi Filesystem: unmounter failed to load volume data file: cannot find `pods/u1/volumes/kubernetes.io~csi/pv/vol_data.json`
            kubernetes.io/csi Block: unmounter failed to load volume data file: cannot find `plugins/kubernetes.io/csi/volumeDevices/pv/data/vol_data.json`
            kubernetes.io/empty-dir Filesystem: EmptyDir { medium: "", size_limit: None }
            kubernetes.io/host-path Filesystem: HostPath { path: "pv", kind: "" }
            kubernetes.io/nfs Filesystem: Nfs { server: "", path: "pv", read_only: false }
            kubernetes.io/local-volume Filesystem: Some(Local { path: "", fs_type: "" }) of pv
            kubernetes.io/local-volume Block: Some(Local { path: "/dev/disk", fs_type: "" }) of pv
            kubernetes.io/image Filesystem: volume `pv` does not belong to plugin kubernetes.io/image
            kubernetes.io/configmap Filesystem: ConfigMap(Content { name: "", items: [], default_mode: 0, optional: false })
            kubernetes.io/secret Filesystem: Secret(Content { name: "pv", items: [], default_mode: 0, optional: false })
            kubernetes.io/downward-api Filesystem: DownwardApi { items: [], default_mode: 0 }
            kubernetes.io/projected Filesystem: Projected { sources: [], default_mode: 0 }
        "#]].assert_eq(&lines);
    }

    #[test]
    fn every_plugin_that_would_take_a_volume_is_named() {
        let registry = kubelet().with(Arc::new(EmptyDirPlugin)).with(Arc::new(NfsPlugin));
        let spec = inline(VolumeSource::EmptyDir { medium: String::new(), size_limit: None });
        let text = "multiple volume plugins matched: kubernetes.io/empty-dir,kubernetes.io/empty-dir";
        assert_eq!(registry.pick(&spec).unwrap_err().to_string(), text);
        let unknown = inline(VolumeSource::Other { kind: "paper".into() });
        let text = "no volume plugin matched: there is none for paper";
        assert_eq!(registry.pick(&unknown).unwrap_err().to_string(), text);
    }

    #[test]
    fn each_plugin_has_its_own_qualified_name() {
        let registry = kubelet();
        let mut names = std::collections::BTreeSet::new();
        for plugin in registry.all() {
            let name = plugin.name();
            assert_eq!(registry.by_name(&name).unwrap().name(), name);
            let (domain, own) = name.as_str().split_once('/').unwrap();
            let plain = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(domain == "kubernetes.io" && !own.is_empty() && own.chars().all(plain), "{name}");
            assert!(names.insert(name.clone()), "{name} twice");
        }
        let error = registry.by_name(&PluginName::new("kubernetes.io/paper")).unwrap_err();
        assert_eq!(error.to_string(), "no volume plugin matched name: kubernetes.io/paper");
    }
}
