//! Whether two findings are of one fault. Pure: compares what they say.

use crate::finding::Finding;

/// Whether two findings are of one fault: for one promise and call they have the same cause, or the driver gave the same
/// answer. Stories of cases have no promise in common.
pub(super) fn is_one_fault(one: &Finding, other: &Finding, both_are_stories: bool) -> bool {
    let same = |plain: fn(&str) -> String| {
        let [one, other] = [one, other].map(|finding| plain(&finding.sentence));
        !one.is_empty() && one == other
    };
    let same_call = one.contract == other.contract && one.method == other.method;
    one.key() == other.key()
        || both_are_stories && (same(without_names) || same(refusal))
        || same_call && (same(without_symbols) || same(refusal))
}

/// A sentence without the names in it, which are other ones in each case: single words in backquotes, and those in the
/// symbols of paths.
fn without_names(sentence: &str) -> String {
    let parts = sentence.split('`').enumerate();
    // A line of a story has several words, and distinguishes one fault from another.
    let is_name = |(place, part): &(usize, &str)| place % 2 == 1 && !part.contains(' ');
    parts.filter(|part| !is_name(part)).map(|(_, part)| without_symbols(part)).collect()
}

/// A sentence without the names in the symbols of paths, which an answer of the driver has as well: `<publish:data/web>`
/// becomes `<publish>`.
fn without_symbols(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, symbol)) = rest.split_once('<') {
        let Some((symbol, after)) = symbol.split_once('>') else { break };
        let kind = symbol.split(':').next().unwrap_or_default();
        left += &format!("{before}<{kind}>");
        rest = after;
    }
    left + rest
}

/// The beginning of a finding about calls that were made without any of their fields.
const WITHOUT_ANY: &str = "Without any of the required fields, ";

/// The calls of a finding about calls that were made without any of their fields; none for any other finding.
pub(super) fn calls_without_fields(finding: &Finding) -> Vec<&str> {
    let calls = finding.sentence.strip_prefix(WITHOUT_ANY).unwrap_or_default();
    calls.split(", ").filter_map(|call| Some(call.split_once(" answered ")?.0)).collect()
}

/// The driver's refusal that a sentence tells of, without what is another one in each case: the call, the code, and the
/// words. Empty if it tells of none, or if the driver gave no words: then two refusals may have two reasons.
///
/// A case that makes a call itself tells of it in other words than one that waits for the node.
fn refusal(sentence: &str) -> String {
    let told = by_a_case(sentence).or_else(|| at_a_dead_end(sentence)).or_else(|| by_a_rule(sentence));
    let Some((call, code, message)) = told else { return String::new() };
    let message = words(message);
    if message.is_empty() {
        message
    } else {
        format!("{call} {} {message}", code.replace('_', "").to_lowercase())
    }
}

/// `NodeUnstageVolume of this answered Internal (it is busy), and not OK.`
fn by_a_case(sentence: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = sentence.split_once(" answered ")?;
    let (code, message) = after.rsplit_once("), and not ")?.0.split_once(" (")?;
    Some((before.split(' ').next()?, code, message))
}

/// `NodeUnstageVolume answers INTERNAL each time: "it is busy".`
fn at_a_dead_end(sentence: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = sentence.split_once(" answers ")?;
    let (code, message) = after.strip_suffix("\".")?.split_once(": \"")?;
    Some((before.rsplit(' ').next()?, code.split(' ').next()?, message))
}

/// `NodeUnstageVolume of a volume that was unpublished everywhere was refused, with Internal (it is busy), for as often …`
fn by_a_rule(sentence: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = sentence.split_once(" was refused, with ")?;
    let (code, message) = after.rsplit_once("), for as often ")?.0.split_once(" (")?;
    Some((before.split(' ').next()?, code, message))
}

/// A driver's message with one word for each path, name and id in it.
fn words(message: &str) -> String {
    let message = message.replace("\\\"", "\"").replace("\\n", " ");
    let is_between = |c: char| c.is_whitespace() || "\"'`()[]{},;=".contains(c);
    let plain = |word: &str| -> String {
        let has_digit = word.contains(|c: char| c.is_ascii_digit());
        match word {
            path if path.contains('/') => "<path>".to_owned(),
            symbol if symbol.contains('<') => "<name>".to_owned(),
            id if has_digit && id.contains('-') => "<name>".to_owned(),
            word => word.trim_matches(|c: char| c.is_ascii_punctuation()).to_owned(),
        }
    };
    let words = message.split(is_between).filter(|word| !word.is_empty()).map(plain);
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pods_make_no_other_story() {
        let same = |one: &str, two: &str| without_names(one) == without_names(two);
        assert!(same("The volumes of `web` are not mounted.", "The volumes of `other` are not mounted."));
        assert!(!same("The volumes of `web` are not mounted.", "The volumes of `web` are not unmounted."));
        assert!(!same("Saw `csi Stage a`.", "Saw `csi Publish a`."));
    }

    #[test]
    fn kinds_of_paths_stay() {
        let refused =
            |path: &str| without_symbols(&format!("NodeUnpublishVolume answers: \"{path}: not empty\"."));
        assert_eq!(refused("<publish:data/web>"), refused("<publish:data-3/web-3-0>"));
        assert_ne!(refused("<publish:data/web>"), refused("<stage:data>"));
        assert_ne!(refused("a < b"), refused("a < c"));
    }

    #[test]
    fn refusal_is_the_same_in_each_way_of_telling() {
        let rows = [
            r#"NodeUnstageVolume answers INTERNAL each time: "volume \"<volume:data>\" is still published at [\"<web-30>/data/mount\"]"."#,
            r#"NodeUnstageVolume answered Internal (volume "<volume:data>" is still published at ["/var/lib/kubelet/by-hand/data/web/mount"]), and not OK."#,
            r#"NodeUnstageVolume of a volume that was unpublished everywhere was refused, with Internal (volume "<volume:data-1>" is still published at ["<publish:data/web>"]), for as often as the node asked."#,
        ];
        let said: Vec<String> = rows.iter().map(|row| refusal(row)).collect();
        assert_eq!(said[0], "NodeUnstageVolume internal volume <name> is still published at <path>");
        assert_eq!((&said[1], &said[2]), (&said[0], &said[0]));
    }

    #[test]
    fn refusals_with_other_words_are_other_faults() {
        let mount = |program: &str, place: &str, status: u8| {
            refusal(&format!(
                "NodeStageVolume answered Unknown (Command '{program} /dev/loop0 /k/{place}/mount' returned {status}.), and not OK."
            ))
        };
        assert_eq!(mount("mount", "data", 32), mount("mount", "data-1", 32));
        assert_ne!(mount("mount", "data", 32), mount("mkfs.ext4", "data", 32));
        assert_ne!(mount("mount", "data", 32), mount("mount", "data", 1));
        // Without words of the driver the reason is not known.
        assert_eq!(refusal("CreateVolume of a taken name answered OK, and not AlreadyExists."), "");
        assert_eq!(refusal("The target is still mounted."), "");
    }
}
