//! A resource of an offer, kept whole.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::value::{Range, Ranges, Scalar, Set, ValueType};

/// A resource as it was offered. What the scheduler has no use for (reservations with their labels, disk,
/// provider, revocable, allocation) stays in `rest`, since a task's resources have to be those that were offered:
/// only the quantity may differ (`spec/mesos-http-api.md` §12).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// `cpus`, `mem` in MiB, `disk` in MiB, `gpus`, `ports`, or the operator's own.
    pub name: String,
    /// Which field is set.
    #[serde(rename = "type")]
    pub value_type: ValueType,
    /// If it is a quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalar: Option<Scalar>,
    /// If it is ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Ranges>,
    /// If it is words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<Set>,
    /// All the rest.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Resource {
    /// How much of the scalar with this name it is.
    pub fn amount(&self, name: &str) -> Scalar {
        match self.scalar {
            Some(scalar) if self.name == name => scalar,
            _ => Scalar::ZERO,
        }
    }

    /// The same with another quantity.
    pub fn with_amount(&self, amount: Scalar) -> Self {
        Self { scalar: Some(amount), ..self.clone() }
    }

    /// The same with other ranges.
    pub fn with_ranges(&self, ranges: Ranges) -> Self {
        Self { ranges: Some(ranges), ..self.clone() }
    }

    /// Its ranges, if it has this name.
    pub fn ranges(&self, name: &str) -> &[Range] {
        match &self.ranges {
            Some(ranges) if self.name == name => &ranges.ranges,
            _ => &[],
        }
    }
}
