//! Functions as mutants have them: one source file in which a switch chooses between bodies.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// Merges a file with the versions of all mutants. In the result, each function that a mutant changes first asks
/// `crate::planted` for the name of the active mutant.
///
/// Several mutants may change one function: each has a body of its own.
pub(super) fn merge(whole: &str, mutants: &BTreeMap<String, String>) -> Result<String, String> {
    let bodies = bodies(whole)?;
    let mut variants: Vec<Vec<(&str, &str)>> = vec![Vec::new(); bodies.len()];
    for (name, text) in mutants {
        let changed = self::bodies(text).map_err(|error| format!("{name}: {error}"))?;
        if outside(whole, &bodies) != outside(text, &changed) {
            return Err(format!("{name}: a mutant may change the bodies of functions only"));
        }
        for (at, (before, after)) in bodies.iter().zip(&changed).enumerate() {
            if whole[before.clone()] != text[after.clone()] {
                variants[at].push((name, &text[after.clone()]));
            }
        }
    }
    let mut merged = String::new();
    let mut copied = 0;
    for (body, variants) in bodies.iter().zip(variants).filter(|(_, variants)| !variants.is_empty()) {
        merged += &whole[copied..body.start];
        merged += "{\n";
        for (name, variant) in variants {
            merged += &format!("if crate::planted({name:?}) {variant} else ");
        }
        merged += &whole[body.clone()];
        merged += "\n}";
        copied = body.end;
    }
    Ok(merged + &whole[copied..])
}

/// The text between the bodies.
fn outside<'a>(text: &'a str, bodies: &[Range<usize>]) -> Vec<&'a str> {
    let starts = std::iter::once(0).chain(bodies.iter().map(|body| body.end));
    let ends = bodies.iter().map(|body| body.start).chain([text.len()]);
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// The ranges of function bodies, braces included. A function within a function belongs to the outer one.
fn bodies(text: &str) -> Result<Vec<Range<usize>>, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("is no Rust: {error}"))?;
    let mut found = Vec::new();
    search(tokens, &mut found);
    Ok(found)
}

fn search(tokens: TokenStream, found: &mut Vec<Range<usize>>) {
    let mut tokens = tokens.into_iter().peekable();
    // Between the name of a function and its body, or the `;` of one that has none.
    let mut signature = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "fn" => {
                // Without a name it is a type.
                signature = signature || matches!(tokens.peek(), Some(TokenTree::Ident(_)));
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => signature = false,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && signature => {
                found.push(bytes(group.span_open()).start..bytes(group.span_close()).end);
                signature = false;
            }
            TokenTree::Group(group) => search(group.stream(), found),
            _ => {}
        }
    }
}

fn bytes(span: Span) -> Range<usize> {
    span.byte_range()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
const A: u8 = 1;
fn untouched() -> u8 { A }
impl X {
    // fn no_function() { 0 }
    async fn first(&self, by: fn(u8) -> u8) -> Result<()> {
        let s = \"} fn {\";
        self.a().await?;
        Ok(())
    }
}
trait T {
    fn none(&self) -> [u8; 2];
    fn some<const N: usize>(&self) -> u8 where Self: Sized { fn inner() {} 2 }
}
";

    fn merged(mutants: &[(&str, &str, &str)]) -> Result<String, String> {
        let changed = |&(name, old, new): &(&str, &str, &str)| {
            assert!(WHOLE.contains(old), "{old}");
            (name.to_owned(), WHOLE.replace(old, new))
        };
        merge(WHOLE, &mutants.iter().map(changed).collect())
    }

    #[test]
    fn mutants_of_one_function_have_a_body_each() {
        let merged =
            merged(&[("b", "self.a().await?;", ""), ("a", "\"} fn {\"", "'{'"), ("c", "2 }", "3 }")]);
        let expected = WHOLE
            .replace(
                "{\n        let s = \"} fn {\";\n        self.a().await?;\n        Ok(())\n    }",
                "{\nif crate::planted(\"a\") {\n        let s = '{';\n        self.a().await?;\n        Ok(())\n    } else \
                 if crate::planted(\"b\") {\n        let s = \"} fn {\";\n        \n        Ok(())\n    } else \
                 {\n        let s = \"} fn {\";\n        self.a().await?;\n        Ok(())\n    }\n}",
            )
            .replace(
                "{ fn inner() {} 2 }",
                "{\nif crate::planted(\"c\") { fn inner() {} 3 } else { fn inner() {} 2 }\n}",
            );
        assert_eq!(merged.as_deref(), Ok(expected.as_str()));
    }

    #[test]
    fn changes_outside_of_functions_are_refused() {
        for (old, new) in
            [("A: u8", "A: u16"), ("(&self) -> [u8; 2]", "(&self)"), ("trait T {", "trait T { fn x() {}")]
        {
            let refused = merged(&[("a", old, new)]).expect_err(new);
            assert!(refused.starts_with("a: "), "{refused}");
        }
    }

    #[test]
    fn without_mutants_a_file_stays_as_it_is() {
        assert_eq!(merged(&[]).as_deref(), Ok(WHOLE));
    }
}
