//! Reads OpenMetrics text, and is strict about it.

use std::collections::{BTreeMap, BTreeSet};

/// A page, checked.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// By name and labels as written.
    pub(crate) samples: BTreeMap<String, f64>,
    /// By family: type and help.
    pub(crate) families: BTreeMap<String, (String, String)>,
}

impl Page {
    /// Reads a page; panics at what is wrong with it.
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let body = text.strip_suffix("# EOF\n").expect("the page ends with # EOF");
        let mut family = None;
        let mut help = None;
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, text) = rest.split_once(' ').expect("HELP has a text");
                assert!(text.contains(' ') && text.ends_with('.'), "no sentence: {line}");
                help = Some((name.to_owned(), text.to_owned()));
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("TYPE has a type");
                assert!(["counter", "gauge", "histogram", "info"].contains(&kind), "{line}");
                let (of, text) = help.take().expect("HELP comes before TYPE");
                assert_eq!(of, name, "HELP and TYPE are of the same family");
                let before = page.families.insert(name.to_owned(), (kind.to_owned(), text));
                assert!(before.is_none(), "{name} comes twice");
                family = Some((name.to_owned(), kind.to_owned()));
            } else {
                let (name, kind) = family.as_ref().expect("samples come after a TYPE");
                page.sample(line, name, kind);
            }
        }
        page.check_histograms();
        page
    }

    fn sample(&mut self, line: &str, family: &str, kind: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line:?}"));
        let name = series.split('{').next().expect("a split has a first part");
        let suffix = name.strip_prefix(family);
        let suffix = suffix.unwrap_or_else(|| panic!("{line:?} stands below {family}"));
        let allowed: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        assert!(allowed.contains(&suffix), "{line:?} in a {kind}");
        let labels = &series[name.len()..];
        assert!(
            labels.is_empty() || (labels.starts_with('{') && labels.ends_with("\"}")),
            "labels: {line:?}"
        );
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("value: {line:?}"));
        assert!(value.is_finite(), "{line:?}");
        assert!(kind == "gauge" || value >= 0.0, "{line:?}");
        assert!(self.samples.insert(series.to_owned(), value).is_none(), "twice: {line:?}");
    }

    fn check_histograms(&self) {
        let histograms = self.families.iter().filter(|(_, (kind, _))| kind == "histogram");
        for (name, _) in histograms {
            let start = format!("{name}_bucket{{le=\"");
            let mut buckets: Vec<(f64, f64)> = self
                .samples
                .iter()
                .filter_map(|(series, count)| {
                    let bound = series.strip_prefix(&start)?.strip_suffix("\"}")?;
                    Some((bound.parse().expect("a bound is a number"), *count))
                })
                .collect();
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name} is not cumulative");
            let all = buckets.last().expect("a histogram has buckets");
            assert_eq!(*all, (f64::INFINITY, self.samples[&format!("{name}_count")]), "{name}");
        }
    }

    /// Families of this type.
    pub(crate) fn of_type(&self, kind: &str) -> BTreeSet<&str> {
        let families = self.families.iter().filter(|(_, (of, _))| of == kind);
        families.map(|(name, _)| name.as_str()).collect()
    }
}
