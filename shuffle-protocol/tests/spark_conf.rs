//! Spark's own reading of configuration texts against ours (`spark_conf/README.md`).

#![expect(clippy::unwrap_used, reason = "a golden file that cannot be read fails the test")]

use std::collections::BTreeMap;

use serde_json::Value;
use shuffle_protocol::spark_conf::{
    SizeUnit, SparkTime, TimeUnit, ValueError, parse_properties, parse_size,
};

fn golden(list: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("spark_conf/golden.json")).unwrap();
    let cases = all[list].as_array().unwrap().clone();
    assert!(cases.len() > 50, "{list}");
    cases
}

fn text(case: &Value) -> &str {
    case["text"].as_str().unwrap()
}

/// The error that goes with Spark's words.
fn same_reason(ours: &ValueError, sparks: &str) -> bool {
    match ours {
        ValueError::Malformed { .. } => sparks.starts_with("Failed to parse"),
        ValueError::Fraction { .. } => sparks.starts_with("Fractional values are not supported"),
        ValueError::UnknownUnit { unit, .. } => sparks == format!("Invalid suffix: \"{unit}\""),
        ValueError::TooLarge => {
            sparks.starts_with("For input string") || sparks.starts_with("Conversion of")
        }
        _ => false,
    }
}

#[test]
fn properties_are_read_as_by_spark() {
    for case in golden("properties") {
        let ours = parse_properties(text(&case)).map(|entries| {
            entries.into_iter().map(|e| (e.key, Value::from(e.value))).collect::<BTreeMap<_, _>>()
        });
        match case.get("entries") {
            Some(sparks) => {
                let sparks = sparks.as_object().unwrap().clone().into_iter().collect();
                assert_eq!(ours, Ok(sparks), "{case}");
            }
            None => assert!(ours.is_err(), "{case}"),
        }
    }
}

#[test]
fn times_are_read_as_by_spark() {
    for case in golden("times") {
        for (name, unit) in
            [("us", TimeUnit::Micros), ("ms", TimeUnit::Millis), ("s", TimeUnit::Seconds)]
        {
            let ours = SparkTime::parse(text(&case), unit).map(|time| time.to_unit(unit));
            match &case[name] {
                Value::String(reason) => {
                    assert!(same_reason(ours.as_ref().unwrap_err(), reason), "{case} {ours:?}");
                }
                sparks => assert_eq!(ours.ok(), sparks.as_i64(), "{case}"),
            }
        }
    }
}

#[test]
fn sizes_are_read_as_by_spark() {
    for case in golden("sizes") {
        let ours = parse_size(text(&case), SizeUnit::Byte);
        match &case["b"] {
            Value::String(reason) => {
                assert!(same_reason(ours.as_ref().unwrap_err(), reason), "{case} {ours:?}");
            }
            sparks => assert_eq!(ours.ok(), sparks.as_u64(), "{case}"),
        }
    }
}
