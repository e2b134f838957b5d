//! Medians, quartiles, and how a cost grows with a size.

/// The middle half of several values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quartiles {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

/// The quartiles of these values, as medians of the two halves; not a number if there are none.
pub fn quartiles(values: &[f64]) -> Quartiles {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let median = |values: &[f64]| stats::median(values.iter().copied()).unwrap_or(f64::NAN);
    // The middle one of an odd number belongs to both halves.
    let half = values.len().div_ceil(2);
    Quartiles {
        low: median(&values[..half]),
        median: median(&values),
        high: median(&values[values.len() - half..]),
    }
}

/// The exponent of the power of the size with which a cost grows best: 0 is flat, 1 in proportion to the size.
///
/// The slope of a straight line through the logarithms of both, by least squares; not a number for fewer than two sizes.
pub fn growth(points: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let points: Vec<(f64, f64)> = points.into_iter().map(|(size, cost)| (size.ln(), cost.ln())).collect();
    let (size, cost) =
        (stats::mean(points.iter().map(|point| point.0)), stats::mean(points.iter().map(|point| point.1)));
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - size, y - cost)).sum::<f64>();
    sum(|x, y| x * y) / sum(|x, _| x * x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_five_values() {
        let Quartiles { low, median, high } = quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(median, 3.0);
        assert!((1.0..3.0).contains(&low) && high > 3.0 && high <= 5.0, "{low} {high}");
    }

    #[test]
    fn exponent_of_flat_proportional_and_square_growth() {
        for (exponent, points) in [
            (0.0, [(100.0, 7.0), (1000.0, 7.0), (10_000.0, 7.0)]),
            (1.0, [(100.0, 1.0), (1000.0, 10.0), (10_000.0, 100.0)]),
            (2.0, [(10.0, 3.0), (100.0, 300.0), (1000.0, 30_000.0)]),
        ] {
            assert!((growth(points) - exponent).abs() < 1e-9, "{exponent}");
        }
    }
}
