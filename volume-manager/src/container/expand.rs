//! Expands variables in arguments and sub-paths: `$(NAME)`, and `$$` for a dollar. Pure.

use api::Sensitive;

use super::ContainerError;
use super::environment::Environment;

/// Expands all variables. Variables without a value, or with an empty one, are an error that names them all.
pub fn expand(text: &str, environment: &Environment) -> Result<String, ContainerError> {
    let mut missing = Vec::new();
    let expanded = replace(text, |name| {
        let value = environment.get(name).map(Sensitive::reveal).filter(|value| !value.is_empty());
        value.cloned().unwrap_or_else(|| {
            missing.push(name.to_owned());
            String::new()
        })
    });
    if missing.is_empty() { Ok(expanded) } else { Err(ContainerError::MissingValue(missing)) }
}

/// Expands the variables that have a value, and leaves the others as they are.
pub fn known(text: &str, environment: &Environment) -> String {
    let value = |name: &str| environment.get(name).map(|value| value.reveal().clone());
    replace(text, |name| value(name).unwrap_or_else(|| format!("$({name})")))
}

fn replace(text: &str, mut value: impl FnMut(&str) -> String) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        replaced.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            replaced.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            replaced.push_str(&value(name));
            rest = tail;
        } else {
            // A lone dollar is kept.
            replaced.push('$');
            rest = after;
        }
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        [("A", "x"), ("E", "")].map(|(name, value)| (name.into(), Sensitive::new(value.into()))).into()
    }

    #[test]
    fn values_take_the_place_of_names() {
        let environment = environment();
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

    #[test]
    fn unknown_variable_stays_in_a_command() {
        let environment = environment();
        for (word, expanded) in [("$(A)-$(B)", "x-$(B)"), ("$$(A)", "$(A)"), ("<$(E)>", "<>")] {
            assert_eq!(known(word, &environment), expanded);
        }
    }
}
