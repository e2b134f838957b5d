//! Removes the protecting finalizer of a claim that no pod uses, and of a volume that no claim uses. Touches nothing.

use api::Object;
use api::protection::{CLAIM, VOLUME};

/// An object that is being deleted and no longer in use, without its protection finalizer.
pub(super) fn next_freed<'a>(objects: impl Iterator<Item = &'a Object> + Clone) -> Option<Object> {
    let everybody = objects.clone();
    let free = |object: &&Object| match object {
        Object::Claim(claim) => {
            claim.meta.is_deleting()
                && claim.meta.has_finalizer(CLAIM)
                && !everybody.clone().any(|other| uses_claim(other, &claim.meta.namespace, &claim.meta.name))
        }
        Object::Volume(volume) => {
            volume.meta.is_deleting()
                && volume.meta.has_finalizer(VOLUME)
                && !everybody.clone().any(|other| uses_volume(other, &volume.meta.name))
        }
        _ => false,
    };
    let mut freed = objects.clone().find(free)?.clone();
    freed.meta_mut().finalizers.retain(|finalizer| finalizer != CLAIM && finalizer != VOLUME);
    Some(freed)
}

/// Any pod object that was scheduled counts, also one that has ended.
fn uses_claim(object: &Object, namespace: &str, claim: &str) -> bool {
    let Object::Pod(pod) = object else { return false };
    pod.meta.namespace == namespace && pod.claims().any(|name| name == claim)
}

fn uses_volume(object: &Object, volume: &str) -> bool {
    match object {
        Object::Claim(claim) => claim.spec.volume == volume,
        Object::Attachment(attachment) => attachment.volume == volume,
        _ => false,
    }
}
