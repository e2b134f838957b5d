//! The objects that refer to another one, as they were last heard of: found without a look at all others.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::lookup::Lookup;
use api::{Key, Kind, Object};

/// The referring objects of each object that is referred to.
#[derive(Debug, Default)]
pub(crate) struct References(Mutex<Lookup<Key, BTreeSet<Key>>>);

impl References {
    /// Takes in a change of an object, which referred to `before` and refers to `after` now.
    pub(crate) fn replace(
        &self,
        object: &Key,
        before: impl IntoIterator<Item = Key>,
        after: impl IntoIterator<Item = Key>,
    ) {
        let mut all = self.lock();
        for to in before {
            if let Some(from) = all.get_mut(&to) {
                from.remove(object);
                if from.is_empty() {
                    all.remove(&to);
                }
            }
        }
        for to in after {
            all.get_or_default(to).insert(object.clone());
        }
    }

    /// Takes in a change of an attachment, which refers to its volume. Other objects are none of them.
    pub(crate) fn replace_attachment(&self, before: Option<&Object>, after: Option<&Object>) {
        let volume = |object: &Object| match object {
            Object::Attachment(attachment) => Some(Key::cluster(Kind::Volume, &attachment.volume)),
            _ => None,
        };
        if let Some(object) = after.or(before).filter(|object| object.kind() == Kind::Attachment) {
            self.replace(&object.key(), before.and_then(volume), after.and_then(volume));
        }
    }

    /// The objects that refer to one.
    pub(crate) fn to(&self, object: &Key) -> Vec<Key> {
        self.lock().get(object).into_iter().flatten().cloned().collect()
    }

    /// Whether an object refers to one.
    pub(crate) fn has(&self, object: &Key) -> bool {
        self.lock().contains(object)
    }

    /// Whether an object other than `than` refers to one.
    pub(crate) fn has_other(&self, object: &Key, than: &Key) -> bool {
        self.lock().get(object).into_iter().flatten().any(|from| from != than)
    }

    fn lock(&self) -> MutexGuard<'_, Lookup<Key, BTreeSet<Key>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_referred_to_until_its_last_reference_is_gone() {
        let [claim, other] = ["data", "other"].map(|name| Key::namespaced(Kind::Claim, "n", name));
        let [first, second] = ["a", "b"].map(|name| Key::namespaced(Kind::Pod, "n", name));
        let references = References::default();
        references.replace(&first, None, Some(claim.clone()));
        assert!(references.has(&claim) && !references.has_other(&claim, &first));
        references.replace(&second, None, Some(claim.clone()));
        assert!(references.has_other(&claim, &first));
        assert_eq!(references.to(&claim), [first.clone(), second.clone()]);
        references.replace(&second, Some(claim.clone()), Some(other.clone()));
        assert_eq!(references.to(&claim), std::slice::from_ref(&first));
        references.replace(&first, Some(claim.clone()), None);
        references.replace(&second, Some(other), None);
        assert!(references.lock().is_empty());
    }
}
