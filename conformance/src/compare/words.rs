//! Texts without what may differ between two honest runs.

use serde_json::Value;

/// Whether an event is one that the kubelet's pod workers write, who were not there when the recordings were made.
pub(super) fn is_of_pod_sync(message: &str) -> bool {
    message.starts_with("Unable to attach or mount volumes")
}

/// A message of an event or an error.
pub(super) fn message(text: &str) -> String {
    // The recorded pods had no node name, which ends this message.
    if let Some((head, rest)) = text.split_once("NodeExpandVolume succeeded for volume \"") {
        let volume = rest.split('"').next().unwrap_or_default();
        return format!("{head}NodeExpandVolume succeeded for volume \"{volume}\"");
    }
    // The details of a failed connection depend on the client library.
    if let Some((head, rest)) = text.split_once("code = Unavailable desc = ") {
        let said = if rest.starts_with("connection error") { "connection error" } else { rest };
        return format!("{head}code = Unavailable desc = {said}");
    }
    // An error from a cache has "configmap", one from the server "configmaps".
    let text = text.replace("configmaps \"", "configmap \"").replace("secrets \"", "secret \"");
    text.trim_end().to_owned()
}

/// The result of a wait. An error of a pod ends a wait at any state of its other volumes, so those are left out.
pub(super) fn error_of_wait(text: &str) -> String {
    let (lists, cause) = text.split_once("]: ").unwrap_or_default();
    match lists.split_once("], ") {
        Some((unmounted, lists)) if !cause.starts_with("context ") && unmounted.starts_with("unmounted") => {
            message(&format!("{lists}]: {cause}"))
        }
        _ => message(text),
    }
}

/// How a call ended. Who is not answered gives up when his time is over, and whether that or his going is noticed
/// first is a race.
pub(super) fn code(code: &str, injected: &str) -> String {
    let is_left_alone = injected.contains("hang=true") && injected.contains("code= ");
    if is_left_alone { "no answer".to_owned() } else { code.to_owned() }
}

/// A path in which the generation of a volume's files has no name.
pub(super) fn path(text: &str) -> String {
    let plain = |part: &str| match part.strip_prefix("..") {
        Some(rest)
            if rest.starts_with(|first: char| first.is_ascii_digit()) || rest.starts_with("generation_") =>
        {
            "..<generation>".to_owned()
        }
        _ => part.to_owned(),
    };
    text.split('/').map(plain).collect::<Vec<_>>().join("/")
}

/// Options of a mount, in an order that means nothing.
pub(super) fn options(text: &str) -> String {
    let mut options: Vec<&str> = text.split(',').filter(|option| !option.is_empty()).collect();
    options.sort_unstable();
    options.join(",")
}

/// The root of a mount: a path, or a device without its number, which differs between runs.
pub(super) fn root(text: &str) -> String {
    match text.strip_prefix("/loop") {
        Some(number) if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) => {
            "/loop<n>".to_owned()
        }
        _ => text.to_owned(),
    }
}

/// The text of a mount without its options. For a driver's mount only the root counts; a tmpfs is the node's own mount, so
/// all of it counts.
pub(super) fn mount(shown: &str, fstype: &str, supers: &str) -> String {
    let shows = format!("shows {}", root(shown));
    if fstype != "tmpfs" || shown != "/" {
        return shows;
    }
    let counts =
        |option: &&str| option.starts_with("size=") || option.starts_with("mode=") || *option == "noswap";
    let supers: Vec<&str> = supers.split(',').filter(counts).collect();
    format!("is a tmpfs {}", options(&supers.join(",")))
}

/// A request without the fields that differ between runs.
pub(super) fn request(request: &Value) -> String {
    let Value::Object(fields) = request else { return String::new() };
    let word = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("volumeContext", Value::Object(context)) => {
            let mut context = context.clone();
            if let Some(tokens) = context.get_mut("csi.storage.k8s.io/serviceAccount.tokens") {
                *tokens = Value::String("<tokens>".to_owned());
            }
            format!("{key}={}", Value::Object(context))
        }
        // A recorder may mask the values of secrets.
        ("secrets", Value::Object(secrets)) => {
            format!("{key}={{{}}}", secrets.keys().cloned().collect::<Vec<_>>().join(","))
        }
        (_, Value::String(text)) => format!("{key}={text}"),
        _ => format!("{key}={value}"),
    };
    fields.iter().map(word).collect::<Vec<_>>().join(" ")
}
