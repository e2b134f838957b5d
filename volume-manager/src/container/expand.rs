//! Variables in sub-paths: `$(NAME)`, and `$$` for a dollar. Pure.

use std::collections::BTreeMap;

use super::ContainerError;

/// Puts the environment's values in place of its names. A name without a value, or with an empty one, is an
/// error that names all of them.
pub fn expand(text: &str, environment: &BTreeMap<String, String>) -> Result<String, ContainerError> {
    let mut expanded = String::new();
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            expanded.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            match environment.get(name).filter(|value| !value.is_empty()) {
                Some(value) => expanded.push_str(value),
                None => missing.push(name.to_owned()),
            }
            rest = tail;
        } else {
            // A lone dollar stands for itself.
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    if missing.is_empty() { Ok(expanded) } else { Err(ContainerError::MissingValue(missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_place_of_names() {
        let environment = BTreeMap::from([("A".into(), "x".into()), ("E".into(), String::new())]);
        for (text, expanded) in [
            ("plain", Ok("plain")),
            ("$(A)/y", Ok("x/y")),
            ("$$(A)", Ok("$(A)")),
            ("$A", Ok("$A")),
            ("$(A", Ok("$(A")),
            ("cost$", Ok("cost$")),
            ("$(B)/$(A)/$(C)", Err("missing value for B, C")),
            ("$(E)", Err("missing value for E")),
        ] {
            let found = expand(text, &environment).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expanded, "{text}");
        }
    }
}
