//! `divergences.toml`: where ours answers otherwise than Spark's service, and why.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    divergence: Vec<Divergence>,
}

/// One reason to differ, in one or several cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Divergence {
    /// Names of cases; with a `*` at the end, of all that begin so.
    cases: Vec<String>,
    /// `3.5.9` or `4.3.0` when ours differs from that one only.
    reference: Option<String>,
    /// Part of what Spark's service does.
    jvm: String,
    /// Part of what ours does.
    ours: String,
    /// Why that is right.
    reason: String,
}

/// Steps and what came of them.
pub(crate) type Transcript = Vec<(String, Vec<String>)>;

/// The outcome that ends a connection.
pub(crate) const CLOSED: &str = "closed";

/// Where two transcripts differ. Once only one of the services has closed the connection, what
/// follows cannot be compared.
pub(crate) fn differences(jvm: &Transcript, ours: &Transcript) -> Vec<Difference> {
    let mut differences = Vec::new();
    for ((step, jvm), (_, ours)) in jvm.iter().zip(ours) {
        for at in 0..jvm.len().max(ours.len()) {
            let outcome = |outcomes: &[String]| outcomes.get(at).cloned();
            let [jvm, ours] =
                [jvm, ours].map(|all| outcome(all).unwrap_or_else(|| "nothing".to_owned()));
            if jvm == ours {
                continue;
            }
            let closed = jvm == CLOSED || ours == CLOSED;
            differences.push(Difference { step: step.clone(), jvm, ours });
            if closed {
                return differences;
            }
        }
    }
    differences
}

/// Something that ours does otherwise.
#[derive(Debug)]
pub(crate) struct Difference {
    /// After what.
    pub(crate) step: String,
    /// What Spark's service does.
    pub(crate) jvm: String,
    /// What ours does.
    pub(crate) ours: String,
}

/// Holds differences against the file.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Vec<Divergence>,
    used: BTreeSet<(usize, String, String)>,
    unlisted: String,
}

impl Ledger {
    /// The entries for the cases that are `ours` to judge.
    pub(crate) fn read(ours: impl Fn(&str) -> bool) -> Self {
        Self::parse(include_str!("divergences.toml"), ours)
    }

    fn parse(text: &str, ours: impl Fn(&str) -> bool) -> Self {
        let file: File = toml::from_str(text).expect("the ledger is TOML");
        for entry in &file.divergence {
            let why = entry.reason.trim();
            assert!(why.len() > 20, "{:?} differ without a reason", entry.cases);
        }
        let mut entries = file.divergence;
        entries.iter_mut().for_each(|entry| entry.cases.retain(|case| ours(case)));
        Self { entries, used: BTreeSet::new(), unlisted: String::new() }
    }

    /// In a case, ours differs from `reference`.
    pub(crate) fn note(&mut self, case: &str, reference: &str, difference: &Difference) {
        let Difference { step, jvm, ours } = difference;
        let listed = self.entries.iter().position(|entry| {
            entry.cases.iter().any(|name| matches(name, case))
                && entry.reference.as_deref().is_none_or(|only| only == reference)
                && jvm.contains(&entry.jvm)
                && ours.contains(&entry.ours)
        });
        match listed {
            Some(entry) => {
                self.used.insert((entry, case.to_owned(), reference.to_owned()));
            }
            None => {
                let (jvm, ours) = (brief(jvm), brief(ours));
                let _ = writeln!(
                    self.unlisted,
                    "{case}, {step}\n  {reference}: {jvm}\n  ours:  {ours}"
                );
            }
        }
    }

    /// Fails on differences that are not in the file, and on entries of it that are none. `ran` are
    /// all cases, each with the references it was held against.
    pub(crate) fn settle(self, ran: &[(String, Vec<String>)]) {
        let mut stale = String::new();
        for (at, entry) in self.entries.iter().enumerate() {
            for name in &entry.cases {
                let mut held = ran
                    .iter()
                    .filter(|(case, _)| matches(name, case))
                    .flat_map(|(case, references)| {
                        references.iter().map(move |of| (case, of.as_str()))
                    })
                    .filter(|(_, of)| entry.reference.as_deref().is_none_or(|only| only == *of))
                    .peekable();
                if held.peek().is_none() {
                    let _ = writeln!(stale, "{name}: no such case is held against {entry:?}");
                }
                for (case, reference) in held {
                    if !self.used.contains(&(at, case.clone(), reference.to_owned())) {
                        let Divergence { jvm, ours, .. } = entry;
                        let _ = writeln!(
                            stale,
                            "{case} at {reference}: not jvm = {jvm:?}, ours = {ours:?}"
                        );
                    }
                }
            }
        }
        assert!(
            self.unlisted.is_empty() && stale.is_empty(),
            "differences that divergences.toml does not list:\n{}\nentries that are no \
             difference:\n{stale}",
            self.unlisted
        );
    }
}

fn matches(name: &str, case: &str) -> bool {
    match name.strip_suffix('*') {
        Some(start) => case.starts_with(start),
        None => name == case,
    }
}

fn brief(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"
        [[divergence]]
        cases = ["fetch_*"]
        jvm = "closed"
        ours = "Failure"
        reason = "ours says what is wrong and goes on"
    "#;

    /// Settles what two cases did, each with this outcome of ours where Spark closes.
    fn settle(fetch_one: &str, fetch_two: &str) {
        let mut ledger = Ledger::parse(LISTED, |_| true);
        for (case, ours) in [("fetch_one", fetch_one), ("fetch_two", fetch_two)] {
            let transcript = |outcome: &str| vec![("step".to_owned(), vec![outcome.to_owned()])];
            for difference in differences(&transcript(CLOSED), &transcript(ours)) {
                ledger.note(case, "3.5.9", &difference);
            }
        }
        let ran = ["fetch_one", "fetch_two"].map(|case| (case.into(), vec!["3.5.9".into()]));
        ledger.settle(&ran);
    }

    #[test]
    fn a_listed_difference_is_right() {
        settle("Failure: no such file", "Failure: too short");
    }

    #[test]
    #[should_panic(expected = "fetch_two, step\n  3.5.9: closed\n  ours:  nothing")]
    fn another_difference_is_wrong() {
        settle("Failure: no such file", "nothing");
    }

    #[test]
    #[should_panic(expected = "entries that are no difference:\nfetch_two at 3.5.9")]
    fn an_entry_that_is_no_difference_is_wrong() {
        settle("Failure: no such file", CLOSED);
    }
}
