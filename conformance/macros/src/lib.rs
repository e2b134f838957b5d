//! The `#[case]` attribute: turns an async function into a registered case.
//!
//! It only rearranges what is written above the function; what a case means is `testbed::case`'s
//! business. Wrong use is refused here, at the place it stands, because a case that is not registered
//! would never be missed.

use std::collections::BTreeSet;

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, FnArg, Ident, ItemFn, Lit, LitStr, Meta, ReturnType, Token, Type};

/// Registers an `async fn name(cx: &mut Cx) -> Result` as a case.
///
/// The doc comment is the sentence the case proves, and is demanded. The arguments, all optional:
/// `needs = [Block, …]` (variants of `Need`), `each = [A, B]` (one case for each value, which is handed to
/// the function as its second parameter), `judges = ["DRV-060", …]` (promises that rules or helpers judge in it, beside
/// those whose ids stand in its body), `driver = Shared` (it only makes calls and takes back what they do, so that other
/// cases may run before and after it on the same driver), `serial = "why no other case may run meanwhile"`,
/// `waits = "for what it takes seconds"` (it begins before others), `xfail = "why it is known to fail"`.
#[proc_macro_attribute]
pub fn case(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item: Tokens = item.into();
    match expand(arguments.into(), item.clone()) {
        Ok(tokens) => tokens.into(),
        // The function stays, so that the only message is the one about the attribute.
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#error #item).into()
        }
    }
}

fn expand(arguments: Tokens, item: Tokens) -> syn::Result<Tokens> {
    let arguments: Arguments = syn::parse2(arguments)?;
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), "#[case] belongs on an `async fn name(cx: &mut Cx) -> Result`")
    })?;
    let value_type = check_signature(&function, &arguments)?;
    let proves = doc_comment(&function)?;
    let name = function.sig.ident.clone();
    let text = name.to_string();
    let needs = &arguments.needs;
    let mut judges = promises_named(quote!(#function));
    judges.extend(arguments.judges.iter().map(LitStr::value));
    let serial = optional(&arguments.serial);
    let waits = optional(&arguments.waits);
    let xfail = optional(&arguments.xfail);
    let shares_driver = arguments.shares_driver;
    // A span of the source itself, so that `line!` answers with the line of the name.
    let line = quote_spanned!(name.span()=> ::core::line!());

    let variants = match value_type {
        None => vec![(quote!(None), quote!(#name(cx)), quote!(&[]))],
        Some(value) => (arguments.each.iter())
            .map(|each| {
                let label = each.to_string().to_lowercase();
                let value = quote!(<#value>::#each);
                (quote!(Some(#label)), quote!(#name(cx, #value)), quote!(#value.needs()))
            })
            .collect(),
    };
    let statics = variants.into_iter().map(|(variant, call, more)| {
        quote! {
            const _: () = {
                fn run(cx: &mut ::testbed::cx::Cx) -> ::testbed::case::Running<'_> {
                    ::std::boxed::Box::pin(#call)
                }
                #[::testbed::case::linkme::distributed_slice(::testbed::case::CASES)]
                #[linkme(crate = ::testbed::case::linkme)]
                static CASE: ::testbed::case::Case = ::testbed::case::Case {
                    module: ::core::module_path!(),
                    name: #text,
                    variant: #variant,
                    proves: #proves,
                    file: ::core::file!(),
                    line: #line,
                    needs: &[#(::testbed::need::Need::#needs),*],
                    variant_needs: #more,
                    judges: &[#(#judges),*],
                    shares_driver: #shares_driver,
                    serial: #serial,
                    waits: #waits,
                    xfail: #xfail,
                    run,
                };
            };
        }
    });
    Ok(quote!(#function #(#statics)*))
}

/// The promises whose ids stand as strings in a function, each once.
fn promises_named(function: Tokens) -> BTreeSet<String> {
    let mut promises = BTreeSet::new();
    for token in function {
        match token {
            TokenTree::Group(group) => promises.extend(promises_named(group.stream())),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let id = text.trim_matches('"');
                promises.extend(is_promise(id).then(|| id.to_owned()));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    promises
}

/// Whether this is the id of a driver's promise.
fn is_promise(id: &str) -> bool {
    let number = id.strip_prefix("DRV-");
    number.is_some_and(|number| number.len() == 3 && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The arguments of the attribute.
#[derive(Default)]
struct Arguments {
    needs: Vec<Ident>,
    each: Vec<Ident>,
    judges: Vec<LitStr>,
    shares_driver: bool,
    serial: Option<LitStr>,
    waits: Option<LitStr>,
    xfail: Option<LitStr>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut arguments = Self::default();
        for meta in Punctuated::<Meta, Token![,]>::parse_terminated(input)? {
            let pair = meta.require_name_value().map_err(|_| {
                Error::new(
                    meta.span(),
                    "expected `needs = […]`, `each = […]`, `judges = […]`, `driver = Shared`, `serial = \"…\"`, `waits = \"…\"` or `xfail = \"…\"`",
                )
            })?;
            let name = pair.path.get_ident().map(Ident::to_string).unwrap_or_default();
            match name.as_str() {
                "needs" => arguments.needs = idents(&pair.value)?,
                "each" => arguments.each = idents(&pair.value)?,
                "judges" => arguments.judges = promises(&pair.value)?,
                "driver" => arguments.shares_driver = shared(&pair.value)?,
                "serial" => arguments.serial = Some(reason(&pair.value)?),
                "waits" => arguments.waits = Some(reason(&pair.value)?),
                "xfail" => arguments.xfail = Some(reason(&pair.value)?),
                _ => {
                    let message = format!(
                        "unknown argument `{name}`; there are `needs`, `each`, `judges`, `driver`, `serial`, `waits`, `xfail`"
                    );
                    return Err(Error::new(pair.path.span(), message));
                }
            }
        }
        Ok(arguments)
    }
}

fn idents(value: &Expr) -> syn::Result<Vec<Ident>> {
    let Expr::Array(array) = value else {
        return Err(Error::new(value.span(), "expected a list, such as `[Block, StageUnstage]`"));
    };
    let ident = |element: &Expr| match element {
        Expr::Path(path) => path.path.get_ident().cloned(),
        _ => None,
    };
    (array.elems.iter())
        .map(|element| {
            ident(element).ok_or_else(|| Error::new(element.span(), "expected a bare name, such as `Block`"))
        })
        .collect()
}

fn promises(value: &Expr) -> syn::Result<Vec<LitStr>> {
    let refused = |at: Span| Error::new(at, "expected a list of promises, such as `[\"DRV-060\"]`");
    let Expr::Array(array) = value else { return Err(refused(value.span())) };
    let promise = |element: &Expr| match element {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(id) if is_promise(&id.value()) => Ok(id.clone()),
            other => Err(refused(other.span())),
        },
        other => Err(refused(other.span())),
    };
    array.elems.iter().map(promise).collect()
}

/// There is one thing to say of the driver: that it may be shared.
fn shared(value: &Expr) -> syn::Result<bool> {
    match value {
        Expr::Path(path) if path.path.is_ident("Shared") => Ok(true),
        other => {
            Err(Error::new(other.span(), "expected `Shared`: without it a case has a driver of its own"))
        }
    }
}

fn reason(value: &Expr) -> syn::Result<LitStr> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) if !text.value().trim().is_empty() => Ok(text.clone()),
            other => Err(Error::new(other.span(), "expected the reason, as a string")),
        },
        other => Err(Error::new(other.span(), "expected the reason, as a string")),
    }
}

fn optional(text: &Option<LitStr>) -> Tokens {
    text.as_ref().map_or(quote!(None), |text| quote!(Some(#text)))
}

/// Refuses what cannot be a case; answers the type of the second parameter, if `each` asks for one.
fn check_signature(function: &ItemFn, arguments: &Arguments) -> syn::Result<Option<Type>> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span(), "a case is an `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(signature.generics.span(), "a case has no type parameters; use `each = […]`"));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(Error::new(signature.ident.span(), "a case returns `Result`, so that `?` works in it"));
    }
    let parameters: Vec<&FnArg> = signature.inputs.iter().collect();
    match (parameters.as_slice(), arguments.each.is_empty()) {
        ([_], true) => Ok(None),
        ([_, FnArg::Typed(value)], false) => Ok(Some((*value.ty).clone())),
        (_, true) => Err(Error::new(signature.ident.span(), "a case takes `cx: &mut Cx` and nothing else")),
        (_, false) => {
            Err(Error::new(signature.ident.span(), "a case with `each` takes `cx: &mut Cx` and the value"))
        }
    }
}

/// The doc comment as one string, lines trimmed. There must be one: it is what the case claims.
fn doc_comment(function: &ItemFn) -> syn::Result<String> {
    let lines = function.attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    if text.trim().is_empty() {
        let message = "a case needs a doc comment: the sentence it proves";
        return Err(Error::new(function.sig.ident.span().resolved_at(Span::call_site()), message));
    }
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(arguments: Tokens, item: Tokens, message: &str) {
        let error = expand(arguments, item).expect_err("it is no case");
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn a_case_is_registered_once_for_each_value() {
        let item = quote! {
            /// It works.
            async fn works(cx: &mut Cx, kind: Kind) -> Result { Ok(()) }
        };
        let tokens =
            expand(quote!(needs = [Root], each = [Filesystem, Block]), item).expect("a case").to_string();
        assert_eq!(tokens.matches("distributed_slice").count(), 2);
        assert!(tokens.contains("Some (\"filesystem\")") && tokens.contains("Some (\"block\")"), "{tokens}");
        assert!(tokens.contains("\"It works.\""), "{tokens}");
    }

    #[test]
    fn a_case_judges_the_promises_that_it_names() {
        let item = quote! {
            /// DRV-001 is only mentioned.
            async fn works(cx: &mut Cx) -> Result {
                if cx.is_slow() { cx.keeps("DRV-064", "", true, "")?; }
                answer.is("DRV-020", &["OK"])?;
                answer.is("DRV-020", &["DRV-0210", "xDRV-022"])
            }
        };
        let tokens = expand(quote!(), item.clone()).expect("a case").to_string();
        assert!(tokens.contains(r#"judges : & ["DRV-020" , "DRV-064"]"#), "{tokens}");
        let more = expand(quote!(judges = ["DRV-064", "DRV-001"]), item).expect("a case").to_string();
        assert!(more.contains(r#"judges : & ["DRV-001" , "DRV-020" , "DRV-064"]"#), "{more}");
    }

    #[test]
    fn wrong_use_is_refused_in_plain_words() {
        let good = quote! {
            /// It works.
            async fn works(cx: &mut Cx) -> Result { Ok(()) }
        };
        refused(
            quote!(need = [Root]),
            good.clone(),
            "unknown argument `need`; there are `needs`, `each`, `judges`, `driver`, `serial`, `waits`, `xfail`",
        );
        refused(quote!(needs = Root), good.clone(), "expected a list, such as `[Block, StageUnstage]`");
        refused(quote!(needs = ["Root"]), good.clone(), "expected a bare name, such as `Block`");
        refused(
            quote!(serial),
            good.clone(),
            "expected `needs = […]`, `each = […]`, `judges = […]`, `driver = Shared`, `serial = \"…\"`, `waits = \"…\"` or `xfail = \"…\"`",
        );
        refused(
            quote!(driver = Own),
            good.clone(),
            "expected `Shared`: without it a case has a driver of its own",
        );
        refused(quote!(serial = ""), good.clone(), "expected the reason, as a string");
        refused(
            quote!(judges = ["DRV-60"]),
            good.clone(),
            "expected a list of promises, such as `[\"DRV-060\"]`",
        );
        refused(quote!(each = [A]), good, "a case with `each` takes `cx: &mut Cx` and the value");
    }

    #[test]
    fn signature_of_no_case_is_refused() {
        let plain = quote! {
            /// It works.
            fn works(cx: &mut Cx) -> Result { Ok(()) }
        };
        refused(quote!(), plain, "a case is an `async fn`");
        let silent = quote!(
            async fn works(cx: &mut Cx) -> Result {
                Ok(())
            }
        );
        refused(quote!(), silent, "a case needs a doc comment: the sentence it proves");
        let without_result = quote! {
            /// It works.
            async fn works(cx: &mut Cx) {}
        };
        refused(quote!(), without_result, "a case returns `Result`, so that `?` works in it");
        refused(
            quote!(),
            quote!(
                struct Works;
            ),
            "#[case] belongs on an `async fn name(cx: &mut Cx) -> Result`",
        );
    }
}
