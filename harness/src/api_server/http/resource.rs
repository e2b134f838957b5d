//! Which resources there are, by the paths of the API: those that every cluster has, and those that
//! CustomResourceDefinitions add. Touches nothing.

use api::Kind;
use serde_json::Value;

/// A resource as discovery lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// Empty for the core group.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) is_namespaced: bool,
    /// Whether the status is written on its own, at `/status`.
    pub(super) has_status: bool,
    /// The kind that the node and the controllers see, too.
    pub(super) typed: Option<Kind>,
}

/// Group, version, plural, kind, whether it is namespaced, whether it has a status, and its typed kind.
type Row = (&'static str, &'static str, &'static str, &'static str, bool, bool, Option<Kind>);

const BUILT_IN: &[Row] = &[
    ("", "v1", "pods", "Pod", true, true, Some(Kind::Pod)),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, true, Some(Kind::Claim)),
    ("", "v1", "persistentvolumes", "PersistentVolume", false, true, Some(Kind::Volume)),
    ("", "v1", "nodes", "Node", false, true, Some(Kind::Node)),
    ("", "v1", "secrets", "Secret", true, false, Some(Kind::Secret)),
    ("", "v1", "configmaps", "ConfigMap", true, false, Some(Kind::ConfigMap)),
    ("", "v1", "services", "Service", true, true, Some(Kind::Service)),
    ("", "v1", "events", "Event", true, false, Some(Kind::Notification)),
    ("", "v1", "namespaces", "Namespace", false, true, None),
    ("", "v1", "serviceaccounts", "ServiceAccount", true, false, None),
    ("", "v1", "endpoints", "Endpoints", true, false, None),
    ("", "v1", "limitranges", "LimitRange", true, false, None),
    ("", "v1", "resourcequotas", "ResourceQuota", true, true, None),
    ("", "v1", "replicationcontrollers", "ReplicationController", true, true, None),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass", false, false, Some(Kind::Class)),
    ("storage.k8s.io", "v1", "csidrivers", "CSIDriver", false, false, Some(Kind::CsiDriver)),
    ("storage.k8s.io", "v1", "csinodes", "CSINode", false, false, Some(Kind::CsiNode)),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false, true, Some(Kind::Attachment)),
    ("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true, false, None),
    (
        "storage.k8s.io",
        "v1",
        "volumeattributesclasses",
        "VolumeAttributesClass",
        false,
        false,
        Some(Kind::AttributesClass),
    ),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", true, true, Some(Kind::Snapshot)),
    (
        "snapshot.storage.k8s.io",
        "v1",
        "volumesnapshotcontents",
        "VolumeSnapshotContent",
        false,
        true,
        Some(Kind::SnapshotContent),
    ),
    (
        "snapshot.storage.k8s.io",
        "v1",
        "volumesnapshotclasses",
        "VolumeSnapshotClass",
        false,
        false,
        Some(Kind::SnapshotClass),
    ),
    (
        "groupsnapshot.storage.k8s.io",
        "v1",
        "volumegroupsnapshots",
        "VolumeGroupSnapshot",
        true,
        true,
        Some(Kind::GroupSnapshot),
    ),
    (
        "groupsnapshot.storage.k8s.io",
        "v1",
        "volumegroupsnapshotcontents",
        "VolumeGroupSnapshotContent",
        false,
        true,
        Some(Kind::GroupSnapshotContent),
    ),
    (
        "groupsnapshot.storage.k8s.io",
        "v1",
        "volumegroupsnapshotclasses",
        "VolumeGroupSnapshotClass",
        false,
        false,
        Some(Kind::GroupSnapshotClass),
    ),
    ("coordination.k8s.io", "v1", "leases", "Lease", true, false, None),
    ("events.k8s.io", "v1", "events", "Event", true, false, None),
    ("apps", "v1", "daemonsets", "DaemonSet", true, true, None),
    ("apps", "v1", "deployments", "Deployment", true, true, None),
    ("apps", "v1", "replicasets", "ReplicaSet", true, true, None),
    ("apps", "v1", "statefulsets", "StatefulSet", true, true, None),
    ("batch", "v1", "jobs", "Job", true, true, None),
    ("batch", "v1", "cronjobs", "CronJob", true, true, None),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, true, None),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true, false, None),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", true, false, None),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true, false, None),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false, false, None),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false, false, None),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, false, None),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
        true,
        None,
    ),
    ("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false, false, None),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false, false, None),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false, false, None),
];

/// Resources that answer a POST and keep nothing.
pub(super) const QUESTIONS: [&str; 3] = ["tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"];

impl Resource {
    /// The resources of every cluster.
    pub(super) fn built_in() -> impl Iterator<Item = Self> {
        BUILT_IN.iter().map(|(group, version, plural, kind, is_namespaced, has_status, typed)| Self {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            plural: (*plural).to_owned(),
            kind: (*kind).to_owned(),
            is_namespaced: *is_namespaced,
            has_status: *has_status,
            typed: *typed,
        })
    }

    /// That of a kind which the node sees.
    pub(super) fn of_kind(kind: Kind) -> Self {
        Self::built_in().find(|resource| resource.typed == Some(kind)).expect("each kind has a row")
    }

    /// The resources of a CustomResourceDefinition, one for each served version.
    pub(super) fn defined_by(definition: &Value) -> Vec<Self> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, names) = (text(&spec["group"]), &spec["names"]);
        let versions = spec["versions"].as_array().cloned().unwrap_or_default();
        let served = versions.iter().filter(|version| version["served"].as_bool() != Some(false));
        let resource = |version: &Value| Self {
            group: group.clone(),
            version: text(&version["name"]),
            plural: text(&names["plural"]),
            kind: text(&names["kind"]),
            is_namespaced: spec["scope"] != "Cluster",
            has_status: version["subresources"]["status"].is_object(),
            typed: None,
        };
        served.map(resource).collect()
    }

    /// `apiVersion` of its objects.
    pub(super) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The name in error messages.
    pub(super) fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub(super) fn is_definition(&self) -> bool {
        self.plural == "customresourcedefinitions" && self.group == "apiextensions.k8s.io"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_the_node_has_a_resource() {
        for kind in Kind::ALL {
            assert_eq!(Resource::of_kind(*kind).kind, kind.as_str());
        }
    }
}
