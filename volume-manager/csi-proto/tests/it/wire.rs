//! Compares the contracts in `proto/` with the table of names and numbers beside them.
//!
//! The table was compared with the published contract when it was written. A change of the table changes the
//! wire format: it is right only if the specification has changed.

use csi_proto::descriptor;
use expect_test::expect_file;
use prost_reflect::{
    Cardinality, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ServiceDescriptor,
};

#[test]
fn names_and_numbers_of_the_contracts_equal_the_table() {
    let mut lines = Vec::new();
    let pool = descriptor::pool();
    for service in pool.services() {
        describe_service(&service, &mut lines);
    }
    for message in pool.all_messages().filter(|message| is_ours(message.package_name())) {
        if !message.is_map_entry() {
            describe_message(&message, &mut lines);
        }
    }
    for enumeration in pool.all_enums().filter(|enumeration| is_ours(enumeration.package_name())) {
        describe_enum(&enumeration, &mut lines);
    }
    for extension in pool.all_extensions().filter(|extension| is_ours(extension.package_name())) {
        lines.push(format!(
            "extension {} of {} = {} {}",
            extension.full_name(),
            extension.containing_message().full_name(),
            extension.number(),
            kind(&extension.kind())
        ));
    }
    lines.sort();
    expect_file!["../../proto/wire.txt"].assert_eq(&(lines.join("\n") + "\n"));
}

fn is_ours(package: &str) -> bool {
    package == "csi.v1" || package == "pluginregistration"
}

fn describe_service(service: &ServiceDescriptor, lines: &mut Vec<String>) {
    for method in service.methods() {
        let stream = if method.is_server_streaming() { "stream " } else { "" };
        lines.push(format!(
            "method {}/{} ({}) -> {stream}{}",
            service.full_name(),
            method.name(),
            method.input().full_name(),
            method.output().full_name()
        ));
    }
}

fn describe_message(message: &MessageDescriptor, lines: &mut Vec<String>) {
    lines.push(format!("message {}", message.full_name()));
    for field in message.fields() {
        let oneof =
            field.containing_oneof().map_or(String::new(), |oneof| format!(" oneof {}", oneof.name()));
        let secret = if descriptor::is_secret(&field) { " secret" } else { "" };
        lines.push(format!(
            "field {} = {:>2} {}{oneof}{secret}",
            field.full_name(),
            field.number(),
            field_type(&field)
        ));
    }
}

fn field_type(field: &FieldDescriptor) -> String {
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        return format!("map<{}, {}>", kind(&key.kind()), kind(&value.kind()));
    }
    let repeated = if field.cardinality() == Cardinality::Repeated { "repeated " } else { "" };
    format!("{repeated}{}", kind(&field.kind()))
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(enumeration) => enumeration.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn describe_enum(enumeration: &EnumDescriptor, lines: &mut Vec<String>) {
    for value in enumeration.values() {
        lines.push(format!("value {}.{} = {}", enumeration.full_name(), value.name(), value.number()));
    }
}
