//! The objects of the Kubernetes API that the manager reads and writes, and the trait for that.
//!
//! The objects are lean: they have only the fields that a volume manager and the controllers around it use.
//! Kubernetes' own types exist only in the crate `api-convert`, at the edge. An [`ApiSource`] may be an
//! in-memory cluster, the same behind a socket, or a real API server. Names, amounts, the clock and the classes
//! of errors are here, too, since the node and the cluster side share them. Nothing here does I/O.

pub mod clock;
pub mod content;
pub mod environment;
pub mod error;
pub mod follow;
pub mod group_snapshot;
pub mod kept_tokens;
pub mod lookup;
pub mod names;
pub mod node;
pub mod object;
pub mod patch;
pub mod pod;
pub mod protection;
pub mod quantity;
pub mod runtime;
pub mod service;
pub mod shape;
pub mod snapshot;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod timely;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::names::Namespaced;

pub use content::{ConfigMap, Notification, Secret, Sensitive, Severity, Token, TokenRequest};
pub use group_snapshot::{GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent};
pub use node::{Allocatable, AttachedVolume, CsiNode, CsiNodeDriver, Node, Taint};
pub use object::{Bytes, Meta, Owner, Reference};
pub use patch::{ClaimStatusPatch, Patch, PatchBody};
pub use pod::{Container, ContainerKind, Pod, PodVolume, VolumeSource};
pub use service::{Service, ServicePort};
pub use snapshot::{Snapshot, SnapshotClass, SnapshotContent};
pub use storage::{
    AccessMode, Attachment, AttributesClass, Claim, ClaimPhase, Class, CsiDriver, PersistentSource, Volume,
    VolumeMode,
};

/// List, get, watch and write, for every kind the manager and its controllers know.
///
/// Calls are independent of each other and may be dropped at any await. Nothing retries in here: callers
/// have ladders of their own.
#[async_trait]
pub trait ApiSource: fmt::Debug + Send + Sync + 'static {
    /// The object as it is now; never from a cache.
    async fn get(&self, key: &Key) -> Result<Object, ApiError>;

    /// Every object of a kind, in the order of their keys.
    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError>;

    /// Every object of a kind in one namespace, in the order of their names.
    async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, ApiError> {
        let mut objects = self.list(kind).await?;
        objects.retain(|object| object.meta().namespace == namespace);
        Ok(objects)
    }

    /// Every object of a kind as it is now, then [`Change::Synced`], then each change, until the stream
    /// ends. A source that loses its server ends the stream; the watcher starts again.
    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError>;

    /// Makes an object and returns it as stored. An event comes without a name and gets one that no other has: two
    /// events with the same text about one pod are two objects, even from one writer, before and after its restart.
    async fn create(&self, object: Object) -> Result<Object, ApiError>;

    /// Replaces an object. A `resource_version` that is not empty must be the stored one.
    async fn update(&self, object: Object) -> Result<Object, ApiError>;

    /// Changes some fields of an object and returns it as stored.
    async fn patch(&self, patch: Patch) -> Result<Object, ApiError>;

    /// Deletes an object: at once if it has no finalizers, else by marking it.
    async fn delete(&self, key: &Key) -> Result<(), ApiError>;

    /// Asks for a service-account token that is bound to a pod.
    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError>;
}

/// An error of an [`ApiSource`]. The three errors that callers distinguish have names; all others are refusals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ApiError {
    /// There is no such object.
    #[error("{} \"{}\" not found", key.kind.plural(), key.name)]
    NotFound {
        /// The requested object.
        key: Key,
    },
    /// The object has changed since it was read, or exists already.
    #[error("operation cannot be fulfilled on {} \"{}\": {reason}", key.kind.plural(), key.name)]
    Conflict {
        /// The object to be written.
        key: Key,
        reason: String,
    },
    /// No answer: the server is away, overloaded or too slow. What was asked may have been done.
    #[error("the API server did not answer: {reason}")]
    Unavailable {
        /// The error of the connection, or of the server.
        reason: String,
    },
    /// The server refused the request, and would refuse it again.
    #[error("the API server refused {} \"{}\": {reason}", key.kind.plural(), key.name)]
    Refused {
        /// The requested object.
        key: Key,
        reason: String,
    },
}

impl ApiError {
    /// Whether the object certainly does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the object changed or existed already.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether the same request may well succeed later without a change by the caller or the user.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// A stream of changes of one kind.
pub type Watch = mpsc::UnboundedReceiver<Change>;

/// An event of a [`Watch`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// An object exists, is new, or has changed.
    Applied(Object),
    /// An object was deleted; this is its last version.
    Deleted(Object),
    /// Everything that existed when the watch began has been sent.
    Synced,
}

/// The name of an object among all kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub kind: Kind,
    /// Its namespace; empty for kinds that have none.
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Names an object in a namespace.
    pub fn namespaced(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Names an object of a kind without namespaces.
    pub fn cluster(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, namespace: String::new(), name: name.into() }
    }

    /// Namespace and name alone.
    pub fn namespaced_name(&self) -> Namespaced {
        Namespaced::new(&self.namespace, &self.name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// A kind of object, and the type that holds it: what makes [`get`] and its sisters typed.
pub trait Resource: Sized + Clone + Send + Sync + 'static {
    const KIND: Kind;
    fn meta(&self) -> &Meta;
    /// Wraps it for an [`ApiSource`].
    fn into_object(self) -> Object;
    /// The object without a copy.
    fn from_arc(object: Arc<Self>) -> Object;
    /// Takes it out again, if it is of this kind.
    fn from_object(object: Object) -> Option<Arc<Self>>;

    /// Names this very object.
    fn key(&self) -> Key {
        Key::namespaced(Self::KIND, &self.meta().namespace, &self.meta().name)
    }
}

macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident($type:ty, $name:literal, $plural:literal);)*) => {
        /// Every kind of object there is here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind { $($(#[$about])* $kind,)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The kind as a manifest names it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The kind as messages of the API server name it.
            pub fn plural(self) -> &'static str {
                match self { $(Self::$kind => $plural,)* }
            }
        }

        /// An object of any kind, shared and never changed in place.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum Object { $($(#[$about])* $kind(Arc<$type>),)* }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            pub fn meta(&self) -> &Meta {
                match self { $(Self::$kind(object) => &object.meta,)* }
            }

            /// Its metadata, to change a copy of the object.
            pub fn meta_mut(&mut self) -> &mut Meta {
                match self { $(Self::$kind(object) => &mut Arc::make_mut(object).meta,)* }
            }
        }

        $(impl Resource for $type {
            const KIND: Kind = Kind::$kind;
            fn meta(&self) -> &Meta {
                &self.meta
            }
            fn into_object(self) -> Object {
                Object::$kind(Arc::new(self))
            }
            fn from_arc(object: Arc<Self>) -> Object {
                Object::$kind(object)
            }
            fn from_object(object: Object) -> Option<Arc<Self>> {
                match object {
                    Object::$kind(object) => Some(object),
                    _ => None,
                }
            }
        })*
    };
}

kinds! {
    Pod(Pod, "Pod", "pods");
    Claim(Claim, "PersistentVolumeClaim", "persistentvolumeclaims");
    Volume(Volume, "PersistentVolume", "persistentvolumes");
    Class(Class, "StorageClass", "storageclasses");
    /// A CSI driver and what it wants from a node.
    CsiDriver(CsiDriver, "CSIDriver", "csidrivers");
    Node(Node, "Node", "nodes");
    /// An attachment of a volume to a node.
    Attachment(Attachment, "VolumeAttachment", "volumeattachments");
    /// The drivers of a node.
    CsiNode(CsiNode, "CSINode", "csinodes");
    Secret(Secret, "Secret", "secrets");
    ConfigMap(ConfigMap, "ConfigMap", "configmaps");
    Service(Service, "Service", "services");
    /// A class of attributes that a volume can change to while it is used.
    AttributesClass(AttributesClass, "VolumeAttributesClass", "volumeattributesclasses");
    Snapshot(Snapshot, "VolumeSnapshot", "volumesnapshots");
    /// A snapshot in the driver's storage.
    SnapshotContent(SnapshotContent, "VolumeSnapshotContent", "volumesnapshotcontents");
    SnapshotClass(SnapshotClass, "VolumeSnapshotClass", "volumesnapshotclasses");
    /// A user's request for snapshots of several claims at one moment.
    GroupSnapshot(GroupSnapshot, "VolumeGroupSnapshot", "volumegroupsnapshots");
    /// A group of snapshots in the driver's storage.
    GroupSnapshotContent(GroupSnapshotContent, "VolumeGroupSnapshotContent", "volumegroupsnapshotcontents");
    GroupSnapshotClass(GroupSnapshotClass, "VolumeGroupSnapshotClass", "volumegroupsnapshotclasses");
    /// An event about another object.
    Notification(Notification, "Event", "events");
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Object {
    /// Names this very object.
    pub fn key(&self) -> Key {
        Key::namespaced(self.kind(), &self.meta().namespace, &self.meta().name)
    }
}

/// Gets an object of a type, by namespace (empty for kinds without one) and name.
pub async fn get<R: Resource>(api: &dyn ApiSource, namespace: &str, name: &str) -> Result<Arc<R>, ApiError> {
    let key = Key::namespaced(R::KIND, namespace, name);
    let object = api.get(&key).await?;
    R::from_object(object)
        .ok_or_else(|| ApiError::Refused { key, reason: "the answer is of another kind".to_owned() })
}

/// Lists the objects of a type in one namespace.
pub async fn list_in<R: Resource>(api: &dyn ApiSource, namespace: &str) -> Result<Vec<Arc<R>>, ApiError> {
    Ok(api.list_in(R::KIND, namespace).await?.into_iter().filter_map(R::from_object).collect())
}

/// Lists the objects of a type.
pub async fn list<R: Resource>(api: &dyn ApiSource) -> Result<Vec<Arc<R>>, ApiError> {
    Ok(api.list(R::KIND).await?.into_iter().filter_map(R::from_object).collect())
}
