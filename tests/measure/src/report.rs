//! Results of `bench` and `jitter`: figures by configuration, kept as JSON, shown as tables and as
//! one page of plots.

mod figures;
mod page;
mod plot;

pub use figures::{Counts, Figure, Figures, Results, parse};
pub use page::{Page, save};
