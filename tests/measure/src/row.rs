//! One row of the table: a quantity, its spread over the rounds, its floor, and the aim.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::statistics::{Quartiles, growth, quartiles};

/// A quantity that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The part of the product that is measured: the word on the command line.
    pub subject: String,
    pub name: String,
    pub unit: String,
    pub median: f64,
    /// The lower quartile over the rounds.
    pub low: f64,
    /// The upper quartile over the rounds.
    pub high: f64,
    /// The median of the least that the same work costs, from the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// The median to the floor; of a growth, the largest size to the smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<Aim>,
    /// The medians at each size, if it was measured at several; the largest is the row's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<Size>,
    /// The exponent of its growth over the sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<f64>,
}

/// The median at a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Size {
    pub size: u64,
    pub median: f64,
}

/// The figure that a row should reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The median is at most this.
    AtMost(f64),
    /// The median is at least this.
    AtLeast(f64),
    /// The ratio is at most this.
    Ratio(f64),
    /// The ratio is at least this.
    RatioAtLeast(f64),
}

/// How a row compares with its aim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    Met,
    /// By this factor.
    Missed(f64),
}

impl Row {
    /// A row of these rounds.
    pub fn new(subject: &str, name: impl Into<String>, unit: &str, rounds: &[f64]) -> Self {
        let Quartiles { low, median, high } = quartiles(rounds);
        Self {
            subject: subject.to_owned(),
            name: name.into(),
            unit: unit.to_owned(),
            median,
            low,
            high,
            floor: None,
            ratio: None,
            aim: None,
            sizes: Vec::new(),
            growth: None,
        }
    }

    /// A row of one quantity at several sizes, from the smallest to the largest.
    ///
    /// # Panics
    /// Without a size.
    pub fn growing(subject: &str, name: impl Into<String>, unit: &str, sizes: &[(usize, Vec<f64>)]) -> Self {
        let (_, largest) = sizes.last().expect("a size was measured");
        let medians = |(size, rounds): &(usize, Vec<f64>)| Size {
            size: *size as u64,
            median: quartiles(rounds).median,
        };
        let sizes: Vec<Size> = sizes.iter().map(medians).collect();
        let ratio = sizes.first().zip(sizes.last()).map(|(first, last)| last.median / first.median);
        let exponent = growth(sizes.iter().map(|at| (at.size as f64, at.median)));
        let exponent = exponent.is_finite().then_some(exponent);
        Self { ratio, growth: exponent, sizes, ..Self::new(subject, name, unit, largest) }
    }

    /// Beside the least that the same work costs.
    #[must_use]
    pub fn floor(self, rounds: &[f64]) -> Self {
        let floor = quartiles(rounds).median;
        Self { floor: Some(floor), ratio: Some(self.median / floor), ..self }
    }

    /// With a ratio to something that is not less work, such as a peer.
    #[must_use]
    pub fn ratio(self, ratio: f64) -> Self {
        Self { ratio: Some(ratio), ..self }
    }

    #[must_use]
    pub fn aim(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    /// Whether more is better, as of events a second.
    pub fn is_rate(&self) -> bool {
        self.unit.contains('/')
    }

    /// How it compares with its aim, if it has one.
    pub fn verdict(&self) -> Option<Verdict> {
        let factor = match self.aim? {
            Aim::AtMost(aim) => over(self.median, aim),
            Aim::AtLeast(aim) => aim / self.median,
            Aim::Ratio(aim) => over(self.ratio?, aim),
            Aim::RatioAtLeast(aim) => aim / self.ratio?,
        };
        Some(if factor <= 1.0 { Verdict::Met } else { Verdict::Missed(factor) })
    }
}

/// By which factor a figure is over its aim; an aim of nothing is missed by all there is.
fn over(figure: f64, aim: f64) -> f64 {
    if aim == 0.0 { 1.0 + figure } else { figure / aim }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(aim) => write!(f, "≤ {}", short(*aim)),
            Self::AtLeast(aim) => write!(f, "≥ {}", short(*aim)),
            Self::Ratio(aim) => write!(f, "≤ {}x", short(*aim)),
            Self::RatioAtLeast(aim) => write!(f, "≥ {}x", short(*aim)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::Missed(_) => f.write_str("missed"),
        }
    }
}

/// A figure with three digits that count, and `k` or `M` for thousands and millions.
pub(crate) fn short(figure: f64) -> String {
    let (scaled, suffix) = match figure.abs() {
        size if size >= 1e6 => (figure / 1e6, "M"),
        size if size >= 1e4 => (figure / 1e3, "k"),
        _ => (figure, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 99.95 || scaled.fract() == 0.0 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// The row in one line: name, median with unit, quartiles, floor, ratio, aim.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = |figure: Option<f64>| figure.map_or_else(String::new, short);
        let median = format!("{} {}", short(self.median), self.unit);
        let spread = match self.low == self.high {
            true => String::new(),
            false => format!("{}-{}", short(self.low), short(self.high)),
        };
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let aim = self.aim.map_or_else(String::new, |aim| aim.to_string());
        let verdict = self.verdict().map_or_else(String::new, |verdict| verdict.to_string());
        let line = format!(
            "{:<43} {median:>15} {spread:>11} {:>6} {ratio:>6} {aim:>7} {verdict}",
            self.name,
            cell(self.floor)
        );
        f.write_str(line.trim_end())?;
        if !self.sizes.is_empty() {
            let sizes =
                self.sizes.iter().map(|at| format!("{}: {}", short(at.size as f64), short(at.median)));
            write!(f, "\n  {}", sizes.collect::<Vec<_>>().join(", "))?;
            self.growth.map_or(Ok(()), |growth| write!(f, "; size to the power of {growth:.2}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_has_three_digits() {
        let figures = [0.02, 1.5, 12.345, 123.4, 1234.5, 200_000.0, 6.21e6, 30.0];
        let texts = figures.map(short);
        assert_eq!(texts, ["0.02", "1.50", "12.3", "123", "1234", "200k", "6.21M", "30"]);
    }

    #[test]
    fn row_beside_its_floor_is_judged_by_the_ratio() {
        let row = Row::new("pod", "in", "ms", &[3.0, 3.0, 4.0]).floor(&[2.0, 2.0]).aim(Aim::Ratio(1.25));
        assert_eq!(row.ratio, Some(1.5));
        assert_eq!(row.verdict(), Some(Verdict::Missed(1.2)));
        assert_eq!(row.clone().aim(Aim::Ratio(1.5)).verdict(), Some(Verdict::Met));
        assert_eq!(row.aim(Aim::AtMost(0.0)).verdict(), Some(Verdict::Missed(4.0)));
    }

    #[test]
    fn growth_compares_the_largest_size_with_the_smallest() {
        let sizes = [(100, vec![2.0]), (1000, vec![2.0, 4.0]), (10_000, vec![4.0])];
        let row = Row::growing("manager", "one more pod", "us", &sizes).aim(Aim::Ratio(1.5));
        assert_eq!((row.median, row.ratio), (4.0, Some(2.0)));
        assert!(row.to_string().contains("100: 2, 1000: 3, 10k: 4"), "{row}");
        assert!(matches!(row.verdict(), Some(Verdict::Missed(_))));
    }

    #[test]
    fn line_fits_a_hundred_columns() {
        let row = Row::new("pod", "a".repeat(43), "events/min", &[61_234.5, 70_345.6, 99_499.0]);
        let row = row.floor(&[999.5]).aim(Aim::RatioAtLeast(1.25));
        assert!(row.to_string().chars().count() <= 100, "{row}");
    }
}
