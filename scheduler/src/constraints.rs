//! Which agents may run executors: `spark.mesos.constraints` (`spec/spark-mesos-coarse.md` A4).
//!
//! The values of an entry mean different things by the type of the agent's attribute, as in Spark: a text has to
//! be one of them, a set has to have all of them, and a number has to be at least the least of them. An
//! attribute that an operator wrote as `rack:1` is a number.

use std::collections::{BTreeMap, BTreeSet};

use crate::mesos::value::{Attribute, ValueType};

/// What all have to hold of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Constraints(BTreeMap<String, BTreeSet<String>>);

/// Why a text is not a list of constraints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// An entry without a colon, or with several.
    #[error("{0:?} is not NAME:VALUE,VALUE...; entries are separated by ';'")]
    Shape(String),
    /// Two entries of one name.
    #[error("{0:?} is constrained twice")]
    Twice(String),
}

impl Constraints {
    /// Parses `name:value,value;name:value`. No values ask for the attribute's presence only.
    ///
    /// # Errors
    /// As the variants of [`ConstraintError`] say; an entry that is empty, such as the one after a `;` at the
    /// end, is one.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        let mut all = BTreeMap::new();
        if text.is_empty() {
            return Ok(Self(all));
        }
        for entry in text.split(';').map(str::trim) {
            let parts: Vec<&str> = entry.split(':').collect();
            let [name, values] = parts[..] else {
                return Err(ConstraintError::Shape(entry.to_owned()));
            };
            // Empty ones at the end count for nothing, as where Spark splits.
            let values = values.trim_end_matches(',');
            let values = (!values.is_empty()).then(|| values.split(',').map(str::to_owned));
            let values = values.into_iter().flatten().collect();
            if all.insert(name.to_owned(), values).is_some() {
                return Err(ConstraintError::Twice(name.to_owned()));
            }
        }
        Ok(Self(all))
    }

    /// The first that an agent does not meet, as it was written; none if it meets all.
    pub fn unmet(&self, attributes: &[Attribute]) -> Option<String> {
        let entry = self.0.iter().find(|(name, values)| {
            // Of several with one name the last counts.
            let attribute = attributes.iter().rfind(|attribute| attribute.name == **name);
            !attribute.is_some_and(|attribute| meets(attribute, values))
        });
        entry.map(|(name, values)| {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            format!("{name}:{}", values.join(","))
        })
    }
}

fn meets(attribute: &Attribute, required: &BTreeSet<String>) -> bool {
    if required.is_empty() {
        return true;
    }
    match attribute.value_type {
        ValueType::Text => {
            attribute.text.as_ref().is_some_and(|text| required.contains(&text.value))
        }
        ValueType::Set => {
            let offered = attribute.set.as_ref().map_or(&[][..], |set| &set.items);
            required.iter().all(|value| offered.contains(value))
        }
        ValueType::Scalar => attribute.scalar.is_some_and(|offered| {
            let numbers = required.iter().filter_map(|value| value.trim().parse::<f64>().ok());
            numbers.into_iter().any(|least| least <= offered.to_f64())
        }),
        // Spark's own fails on an attribute of ranges, whatever it says. This is what its manual means.
        ValueType::Ranges => {
            let offered = attribute.ranges.as_ref().map_or(&[][..], |ranges| &ranges.ranges);
            let mut numbers = required.iter().filter_map(|value| value.trim().parse().ok());
            numbers.any(|number| offered.iter().any(|range| range.contains(number)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attribute(name: &str, value: &serde_json::Value) -> Attribute {
        let (kind, field, value) = match value {
            serde_json::Value::Number(n) => ("SCALAR", "scalar", json!({"value": n})),
            serde_json::Value::String(s) => ("TEXT", "text", json!({"value": s})),
            serde_json::Value::Array(all) if all.iter().all(serde_json::Value::is_string) => {
                ("SET", "set", json!({"item": all}))
            }
            serde_json::Value::Array(all) => {
                let ranges: Vec<_> =
                    all.iter().map(|r| json!({"begin": r[0], "end": r[1]})).collect();
                ("RANGES", "ranges", json!({"range": ranges}))
            }
            other => panic!("{other}"),
        };
        serde_json::from_value(json!({"name": name, "type": kind, field: value})).unwrap()
    }

    #[test]
    fn entries_are_parsed_as_spark_parses_them() {
        let parsed = |text: &str| {
            let all = Constraints::parse(text).unwrap().0;
            let flat = all.into_iter().map(|(name, values)| (name, values.into_iter().collect()));
            flat.collect::<Vec<(String, Vec<String>)>>()
        };
        let entry = |name: &str, values: &[&str]| {
            (name.to_owned(), values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(parsed(""), []);
        assert_eq!(
            parsed("os:centos7;zone:us-east-1a,us-east-1b"),
            [entry("os", &["centos7"]), entry("zone", &["us-east-1a", "us-east-1b"])]
        );
        for present in ["os:", " os: ", "os:,", "os:,,"] {
            assert_eq!(parsed(present), [entry("os", &[])], "{present:?}");
        }
        assert_eq!(parsed("a:x,"), [entry("a", &["x"])]);
        assert_eq!(parsed("a:,x"), [entry("a", &["", "x"])]);
        assert_eq!(parsed("a: x"), [entry("a", &[" x"])], "only an entry's ends are trimmed");
        assert_eq!(parsed(":v"), [entry("", &["v"])]);
    }

    #[test]
    fn what_is_no_constraint_is_refused() {
        for text in ["os;zone:us-east", "a:b:c", "a:b;", "a:b;;c:d", ";", " ", "a"] {
            let error = Constraints::parse(text).unwrap_err();
            assert!(matches!(error, ConstraintError::Shape(_)), "{text:?}: {error}");
        }
        assert_eq!(Constraints::parse("a:b;a:c"), Err(ConstraintError::Twice("a".to_owned())));
    }

    #[test]
    fn values_mean_what_the_attribute_s_type_makes_of_them() {
        let ranges = json!([[7000, 8000]]);
        for (constraint, offered, met) in [
            ("x:", json!("any"), true),
            ("x:true", json!("true"), true),
            ("x:a,b", json!("b"), true),
            ("x:a,b", json!("c"), false),
            ("x:2", json!(3), true),
            ("x:3", json!(3), true),
            ("x:4", json!(3), false),
            ("x:9,1", json!(2), true),
            ("x:no,number", json!(2), false),
            ("x:a,b", json!(["a", "b", "c"]), true),
            ("x:a,d", json!(["a", "b", "c"]), false),
            ("x:6000", ranges.clone(), false),
            ("x:7500", ranges.clone(), true),
            ("x:8000", ranges.clone(), true),
            ("x:8002", ranges.clone(), false),
            ("x:5000,7500,8300", ranges.clone(), true),
            ("x:seven", ranges, false),
            ("x:12", json!([[1, 2], [10, 20]]), true),
            ("x:", json!([[1, 2]]), true),
        ] {
            let constraints = Constraints::parse(constraint).unwrap();
            let unmet = constraints.unmet(&[attribute("x", &offered)]);
            assert_eq!(unmet, (!met).then(|| constraint_text(constraint)), "{offered}");
            assert!(constraints.unmet(&[]).is_some(), "{constraint}: absent");
            assert!(constraints.unmet(&[attribute("y", &offered)]).is_some());
        }
    }

    /// Values are a set, so they are told in its order.
    fn constraint_text(text: &str) -> String {
        if text == "x:9,1" { "x:1,9".to_owned() } else { text.to_owned() }
    }

    #[test]
    fn all_have_to_hold_and_the_last_of_a_name_counts() {
        let constraints = Constraints::parse("rack:1;os:linux").unwrap();
        let (one, two) = (attribute("rack", &json!("1")), attribute("rack", &json!("2")));
        let linux = attribute("os", &json!("linux"));
        assert_eq!(constraints.unmet(&[two.clone(), linux.clone(), one.clone()]), None);
        assert_eq!(constraints.unmet(&[one, linux, two]).as_deref(), Some("rack:1"));
        assert_eq!(Constraints::default().unmet(&[]), None);
    }
}
