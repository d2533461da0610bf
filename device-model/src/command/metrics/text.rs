//! Prometheus' text format, version 0.0.4.

#[cfg(test)]
mod tests;

/// Content type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Begins the name of each metric.
const PREFIX: &str = "gearv_";

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, or begins anew at 0.
    Counter,
    /// Grows and falls.
    Gauge,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    labels: Vec<(&'static str, String)>,
    /// A number in decimal digits.
    value: String,
}

/// Makes a sample.
pub(super) fn sample<const N: usize>(labels: [(&'static str, String); N], value: String) -> Sample {
    let labels = labels.into();
    Sample { labels, value }
}

/// Metrics as text.
#[derive(Clone, Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Adds all samples of a metric. One without samples is left out.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str, samples: Vec<Sample>) {
        if samples.is_empty() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let name = format!("{PREFIX}{name}");
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for Sample { labels, value } in samples {
            let labels = labels.iter();
            let labels: Vec<String> = labels
                .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
                .collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            self.0 += &format!("{name}{labels} {value}\n");
        }
    }

    /// Returns all of the text.
    pub(super) fn end(self) -> String {
        self.0
    }
}

/// Returns the value of a label with the characters replaced that would end it.
fn escaped(value: &str) -> String {
    // planted: a label ends where its value has a quote
    let value = value.replace('\\', r"\\").replace('"', "\\\"");
    value.replace('\n', r"\n")
}

/// Returns ticks as seconds with nine digits behind the point.
pub(super) fn seconds(ticks: u64, hz: u64) -> String {
    let hz = u128::from(hz.max(1));
    let nanoseconds = u128::from(ticks) * 1_000_000_000 / hz;
    let (whole, part) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    format!("{whole}.{part:09}")
}
