//! Results of `bench` and `jitter`: figures by configuration, kept as JSON, shown as tables and as
//! pages of plots.

mod axis;
mod cdf;
mod figures;
pub mod html;
mod origin;
mod overlay;
mod page;
mod plot;
mod svg;

pub use axis::{Axis, shown};
pub use cdf::cdf;
pub use figures::{Counts, Facts, Figure, Figures, PERCENTILES, Percentile, Results, parse};
pub use origin::Origin;
pub use overlay::overlay;
pub use page::{Page, Row, page};
pub use plot::{Scale, series};

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes the results to a JSON file and their page beside it, and prints where.
pub fn save(results: &Results, page: &str, json: &Path) -> Result<()> {
    results.save(json)?;
    let html = json.with_extension("html");
    fs::write(&html, page).with_context(|| html.display().to_string())?;
    println!("plots: {}\nall samples: {}", html.display(), json.display());
    Ok(())
}
