//! The command that runs one case again, as the user would type it. Touches nothing.

use runner::program::{self, quoted};

use super::super::Called;

/// The command line of this run with a case's id instead of the selection.
pub(super) fn again(called: &Called, filters: &[String]) -> String {
    const WITH_VALUE: [&str; 7] =
        ["--exclude", "--shard", "--repeat", "--report", "--since", "--jobs", "--format"];
    // A build tool passes on the command that the user typed.
    let start = called.start.clone().or_else(|| std::env::var("VOLPROOF_AGAIN").ok());
    let mut kept = vec![start.clone().unwrap_or_else(|| format!("{} run", program::name()))];
    let mut words = called.words.iter().skip(1).filter(|word| *word != "run");
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or_default();
        if WITH_VALUE.contains(&flag) {
            if !word.contains('=') {
                words.next();
            }
        } else if !filters.contains(word)
            && !["--fail-fast", "--keep", "--rerun", "--shuffle"].contains(&word.as_str())
        {
            kept.push(quoted(word));
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_for_one_case_keeps_the_flags_about_the_driver() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = "volproof run --driver-cmd x --report out --since old --shard=1/2 publish --seed 7 --shuffle --exclude a --fail-fast";
        let called = Called { words: words(line), start: None };
        let filters = ["publish".to_owned()];
        assert_eq!(again(&called, &filters), "volproof run --driver-cmd x --seed 7");
        let called = Called { start: Some("cargo test --test driver --".into()), ..called };
        assert_eq!(again(&called, &filters), "cargo test --test driver -- --driver-cmd x --seed 7");
    }
}
