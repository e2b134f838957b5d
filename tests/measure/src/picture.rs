//! The picture: a bar for each row that has a floor, as its multiple, with the aim. Writes one SVG file.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use measure::{Aim, Row, Verdict};
use plotters::prelude::{
    BLACK, Color, DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, Text,
    WHITE,
};

const WIDTH: u32 = 900;
const LINE: u32 = 22;
/// Where bars begin: names stand left of it.
const LEFT: i32 = 400;
const RIGHT: i32 = 840;

const MET: RGBColor = RGBColor(70, 130, 180);
const MISSED: RGBColor = RGBColor(205, 92, 92);
const NO_AIM: RGBColor = RGBColor(150, 150, 150);

/// Draws the rows that have a floor.
pub(crate) fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let rows: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((row, row.floor.and(row.ratio)?))).collect();
    let height = LINE * (u32::try_from(rows.len())? + 3);
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let drawn = draw_on(&area, &rows);
    drawn.map_err(|error| anyhow!("{error}")).with_context(|| format!("cannot draw `{}`", path.display()))
}

fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    rows: &[(&Row, f64)],
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let most = rows.iter().map(|(_, ratio)| *ratio).fold(2.0, f64::max);
    let x = |ratio: f64| LEFT + (ratio / most * f64::from(RIGHT - LEFT)) as i32;
    let y = |at: usize| (at as i32 + 1) * LINE as i32;
    let font = ("sans-serif", 13).into_font();
    area.draw(&Text::new("multiple of the floor (line), aim (tick)", (LEFT, 6), font.clone()))?;
    for (at, (row, ratio)) in rows.iter().enumerate() {
        let colour = match row.verdict() {
            Some(Verdict::Met) => MET,
            Some(Verdict::Missed(_)) => MISSED,
            None => NO_AIM,
        };
        let top = y(at) + 4;
        area.draw(&Text::new(format!("{}: {}", row.subject, row.name), (8, top), font.clone()))?;
        area.draw(&Rectangle::new([(LEFT, top), (x(*ratio), top + 14)], colour.filled()))?;
        area.draw(&Text::new(format!("{ratio:.2}"), (x(*ratio) + 4, top), font.clone()))?;
        if let Some(Aim::Ratio(aim)) = row.aim {
            area.draw(&PathElement::new([(x(aim), top - 2), (x(aim), top + 16)], BLACK.stroke_width(2)))?;
        }
    }
    area.draw(&PathElement::new([(x(1.0), y(0)), (x(1.0), y(rows.len()))], BLACK))?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_a_bar_for_each_row_with_a_floor() {
        let directory = tempfile::tempdir().expect("there is a directory for temporary files");
        let path = directory.path().join("bench.svg");
        let with = Row::new("pod", "in", "ms", &[3.0]).floor(&[2.0]).aim(Aim::Ratio(1.25));
        draw(&[with, Row::new("pod", "without a floor", "ms", &[1.0])], &path).expect("it can be drawn");
        let svg = std::fs::read_to_string(path).expect("it was written");
        assert!(svg.starts_with("<svg"), "{svg}");
        assert!(svg.contains("pod: in") && svg.contains("1.50") && !svg.contains("without"), "{svg}");
    }
}
