//! Amounts of resources as Kubernetes writes them, finer than whole units. Pure.

use crate::Bytes;

/// A quantity in thousandths, in which processors are counted. `None` if the text is no quantity.
pub fn thousandths(text: &str) -> Option<u128> {
    if let Some(milli) = text.strip_suffix('m') {
        return milli.parse().ok();
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    let unit = u128::from(Bytes::from_quantity(&format!("1{suffix}"))?.0);
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_mul(1000)?.checked_add(fraction.parse().ok()?)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_writes() {
        for (text, amount) in [
            ("1", Some(1000)),
            ("250m", Some(250)),
            ("0.25", Some(250)),
            (".5", Some(500)),
            ("1.5Ki", Some(1_536_000)),
            ("", None),
            ("m", None),
            ("1x", None),
        ] {
            assert_eq!(thousandths(text), amount, "{text:?}");
        }
    }
}
