//! The resource and object of a request, from its path. Touches nothing.

/// A path of the API, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// `/api`, `/apis`, `/version` and their like: what the server is and has.
    About(About),
    Objects(ObjectPath),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    Version,
    Health,
    OpenApiV2,
    OpenApiV3,
    CoreVersions,
    Groups,
    Group(String),
    Resources { group: String, version: String },
}

/// A collection of objects, or one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObjectPath {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    /// None: in all namespaces, or of a resource that has none.
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    /// `/watch/` in the path, as older clients ask.
    pub(super) is_watch: bool,
}

impl Target {
    /// None: there is no such path.
    pub(super) fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let about = |about| Some(Self::About(about));
        match parts.as_slice() {
            ["version"] => about(About::Version),
            ["healthz" | "livez" | "readyz", ..] => about(About::Health),
            ["openapi", "v2"] => about(About::OpenApiV2),
            ["openapi", "v3"] => about(About::OpenApiV3),
            ["api"] => about(About::CoreVersions),
            ["apis"] => about(About::Groups),
            ["apis", group] => about(About::Group((*group).to_owned())),
            ["api", version] => {
                about(About::Resources { group: String::new(), version: (*version).to_owned() })
            }
            ["apis", group, version] => {
                about(About::Resources { group: (*group).to_owned(), version: (*version).to_owned() })
            }
            ["api", version, rest @ ..] => objects("", version, rest),
            ["apis", group, version, rest @ ..] => objects(group, version, rest),
            _ => None,
        }
    }
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    let mut path =
        ObjectPath { group: group.to_owned(), version: version.to_owned(), ..ObjectPath::default() };
    let rest = match rest {
        ["watch", rest @ ..] => {
            path.is_watch = true;
            rest
        }
        rest => rest,
    };
    let owned = |part: &&str| Some((*part).to_owned());
    let (namespace, rest) = match rest {
        // The namespace itself, with or without its subresources.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (owned(namespace), rest),
        rest => (None, rest),
    };
    path.namespace = namespace;
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, owned(name), None),
        [plural, name, subresource] => (plural, owned(name), owned(subresource)),
        _ => return None,
    };
    (path.plural, path.name, path.subresource) = ((*plural).to_owned(), name, subresource);
    Some(Target::Objects(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        let Some(Target::Objects(path)) = Target::of(path) else { panic!("{path}") };
        (path.plural, path.namespace, path.name, path.subresource)
    }

    #[test]
    fn paths_name_namespaces_objects_and_subresources() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(path("/api/v1/nodes"), ("nodes".into(), None, None, None));
        assert_eq!(path("/api/v1/namespaces/a"), ("namespaces".into(), None, some("a"), None));
        assert_eq!(path("/api/v1/namespaces/a/pods"), ("pods".into(), some("a"), None, None));
        let lease = path("/apis/coordination.k8s.io/v1/namespaces/a/leases/b");
        assert_eq!(lease, ("leases".into(), some("a"), some("b"), None));
        let status = path("/apis/x.io/v1/namespaces/a/things/b/status");
        assert_eq!(status, ("things".into(), some("a"), some("b"), some("status")));
        assert!(matches!(
            Target::of("/api/v1/watch/pods"),
            Some(Target::Objects(ObjectPath { is_watch: true, .. }))
        ));
        assert_eq!(Target::of("/apis/x.io"), Some(Target::About(About::Group("x.io".into()))));
        assert_eq!(Target::of("/metrics"), None);
    }
}
