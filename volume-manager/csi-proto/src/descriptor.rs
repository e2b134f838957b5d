//! Reflection on the contracts: methods, and fields that are secret. Touches nothing.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, MethodDescriptor, Value};

/// Both contracts with their imports, as a serialized `FileDescriptorSet` that keeps custom options.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contracts.fds"));

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the build script has encoded this set")
});

static CSI_SECRET: LazyLock<ExtensionDescriptor> =
    LazyLock::new(|| POOL.get_extension_by_name("csi.v1.csi_secret").expect("csi.proto declares it"));

/// The methods by their names: no two of the contracts share one.
static METHODS: LazyLock<HashMap<String, MethodDescriptor>> = LazyLock::new(|| {
    let methods = POOL.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.map(|method| (method.name().to_owned(), method)).collect()
});

/// The full names of the secret fields: to read the options of a field takes longer than to decode a message.
static SECRET_FIELDS: LazyLock<HashSet<String>> =
    LazyLock::new(|| secret_fields().map(|field| field.full_name().to_owned()).collect());

/// All descriptors of both contracts.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// The method of a path such as `/csi.v1.Node/NodeStageVolume`.
///
/// The leading slash may be absent, and so may the service.
pub fn method(path: &str) -> Option<MethodDescriptor> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (service, name) = path.rsplit_once('/').map_or((None, path), |(service, name)| (Some(service), name));
    let found = METHODS.get(name)?;
    let is_wanted = service.is_none_or(|wanted| found.parent_service().full_name() == wanted);
    is_wanted.then(|| found.clone())
}

/// The path of a method, from its bare name.
pub fn path(name: &str) -> Option<String> {
    let method = method(name)?;
    Some(format!("/{}/{}", method.parent_service().full_name(), method.name()))
}

/// Whether the contract marks the field as secret (`csi_secret`).
pub fn is_secret(field: &FieldDescriptor) -> bool {
    SECRET_FIELDS.contains(field.full_name())
}

/// Every field that the contract marks as secret.
pub fn secret_fields() -> impl Iterator<Item = FieldDescriptor> {
    let is_marked =
        |field: &FieldDescriptor| field.options().get_extension(&CSI_SECRET).as_ref() == &Value::Bool(true);
    POOL.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>()).filter(is_marked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_methods_share_a_name() {
        let all: usize = pool().services().map(|service| service.methods().count()).sum();
        assert_eq!(METHODS.len(), all);
    }

    #[test]
    fn method_is_found_only_in_its_service() {
        assert!(method("/csi.v1.Node/NodeStageVolume").is_some() && method("NodeStageVolume").is_some());
        assert!(method("/csi.v1.Controller/NodeStageVolume").is_none());
    }
}
