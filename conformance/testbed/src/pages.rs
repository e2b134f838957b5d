//! Follows the pages of a list to the last one, and stops if a driver's pages never end. Touches nothing.

use std::collections::BTreeSet;

/// The most pages of one list. A driver with more volumes than this puts more than one on a page.
const MOST: usize = 1000;

/// Bytes of the longest token that is followed. CSI limits a string to 128 bytes; a little more does no harm.
const LONGEST: usize = 4096;

/// The tokens of one list so far.
#[derive(Debug, Default)]
pub struct Pages {
    given: BTreeSet<String>,
    token: String,
}

/// Why a list has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endless {
    /// Two pages lead to the same next page.
    Repeated,
    /// More pages than a list may have here.
    TooMany,
    /// A token that is too long to be kept.
    LongToken,
}

impl Pages {
    /// The token of the page to ask for.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Takes the token that a page has answered. Returns whether there is another page.
    ///
    /// # Errors
    /// When following it would not end.
    pub fn follow(&mut self, next: &str) -> Result<bool, Endless> {
        if next.len() > LONGEST {
            return Err(Endless::LongToken);
        }
        next.clone_into(&mut self.token);
        if next.is_empty() {
            return Ok(false);
        }
        if !self.given.insert(next.to_owned()) {
            return Err(Endless::Repeated);
        }
        if self.given.len() >= MOST { Err(Endless::TooMany) } else { Ok(true) }
    }
}

impl Endless {
    /// The cause of a finding: the driver's answer that keeps the list from ending, with CSI's sentence about it.
    pub fn cause(self, method: &str) -> String {
        let sentence = "CSI: next_token \"can be used to get the next page of entries\"";
        match self {
            Self::Repeated => format!("{method} answered the same next_token twice ({sentence})."),
            Self::TooMany => {
                format!("{method} answered {MOST} pages, and each with another next_token ({sentence}).")
            }
            Self::LongToken => format!("{method} answered a next_token of more than {LONGEST} bytes."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_ends_with_an_empty_token() {
        let mut pages = Pages::default();
        assert_eq!(pages.token(), "");
        assert_eq!(pages.follow("2"), Ok(true));
        assert_eq!(pages.token(), "2");
        assert_eq!(pages.follow("4"), Ok(true));
        assert_eq!(pages.follow(""), Ok(false));
    }

    #[test]
    fn list_with_a_repeated_token_is_endless() {
        let mut pages = Pages::default();
        assert_eq!(pages.follow("2"), Ok(true));
        assert_eq!(pages.follow("4"), Ok(true));
        assert_eq!(pages.follow("2"), Err(Endless::Repeated), "also with another page in between");
    }

    #[test]
    fn list_with_a_new_token_each_time_is_endless() {
        let mut pages = Pages::default();
        let end = (0..=MOST).find_map(|page| pages.follow(&page.to_string()).err());
        assert_eq!(end, Some(Endless::TooMany));
    }

    #[test]
    fn token_of_any_length_is_not_kept() {
        let mut pages = Pages::default();
        assert_eq!(pages.follow(&"t".repeat(LONGEST + 1)), Err(Endless::LongToken));
        assert_eq!(pages.token(), "");
    }
}
