//! The annotations by which the controllers and the scheduler agree about claims and volumes.

/// On a claim: its volume is bound to it.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: the binder chose, and not a person.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the provisioner that is to make its volume.
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// On a claim: the node of the first pod that uses it.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a class: claims without a class get it.
pub(crate) const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On a volume: the provisioner that made it.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a volume: the secret with which it is deleted.
pub(crate) const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
pub(crate) const DELETION_SECRET_NAMESPACE: &str =
    "volume.kubernetes.io/provisioner-deletion-secret-namespace";
