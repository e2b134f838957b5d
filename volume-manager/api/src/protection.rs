//! The finalizers that keep a claim while a pod uses it, and a volume while a claim is bound to it.

use crate::Object;

/// On a claim: a pod may use it.
pub const CLAIM: &str = "kubernetes.io/pvc-protection";
/// On a volume: a claim may be bound to it.
pub const VOLUME: &str = "kubernetes.io/pv-protection";

/// Gives a new claim or volume the finalizer that protects it, as an API server does.
pub fn guard(object: &mut Object) {
    let finalizer = match object {
        Object::Claim(_) => CLAIM,
        Object::Volume(_) => VOLUME,
        _ => return,
    };
    let meta = object.meta_mut();
    if !meta.has_finalizer(finalizer) {
        meta.finalizers.push(finalizer.to_owned());
    }
}
