//! Promises about answers that describe volumes.

use crate::rule::{Checked, Rule, Witness};

use super::answered;

/// The causes of findings about the capacity that `CreateVolume` answers.
pub const TOO_SMALL: &str = "a volume is smaller than was asked for";
pub const TOO_LARGE: &str = "a volume is larger than the limit that was asked for";

pub(super) static LARGE_ENOUGH: Rule = Rule {
    id: "DRV-012",
    sentence: "a volume is within the capacity range that was asked for, or is refused with OUT_OF_RANGE",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "CreateVolume") else { return };
        let Some(size) = end.response().created_bytes() else { return };
        let (least, most) = call.request().capacity_range();
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(i64::MAX));
        if least == 0 && most == i64::MAX {
            return;
        }
        report.tried();
        if size < least || size > most {
            let name = call.request().name();
            let asked = match (least, most) {
                (least, i64::MAX) => format!("at least {least}"),
                (0, most) => format!("at most {most}"),
                (least, most) => format!("{least} to {most}"),
            };
            let cause = if size < least { TOO_SMALL } else { TOO_LARGE };
            report.broken(&call.method, cause, format!("{name}: {size} bytes, asked for {asked}"));
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn a_volume_is_as_large_as_it_should_be() {
        let rule = &LARGE_ENOUGH;
        let made = |range: &str, volume: &str| {
            format!(
                "calls CreateVolume {{\"name\":\"n\",\"capacityRange\":{range}}} {{\"volume\":{{{volume}}}}} OK"
            )
        };
        let range = r#"{"requiredBytes":"10","limitBytes":"20"}"#;
        for kept in [r#""capacityBytes":"10""#, r#""capacityBytes":20"#] {
            keeps(rule, &made(range, kept), &[]);
        }
        for unknown in [r#""capacityBytes":"0""#, ""] {
            passes_over(rule, &made(range, unknown), &[]);
        }
        passes_over(rule, &made("{}", r#""capacityBytes":"5""#), &[]);
        breaks(rule, TOO_SMALL, &made(range, r#""capacityBytes":"9""#), &[]);
        breaks(rule, TOO_LARGE, &made(range, r#""capacityBytes":"21""#), &[]);
    }
}
