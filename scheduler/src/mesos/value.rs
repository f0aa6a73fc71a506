//! Quantities: what there is of a resource, and what an attribute says.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A scalar with three digits after the point, as the master reckons (`spec/mesos-http-api.md` §12).
/// Sums of doubles would miss what was offered by a hair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Scalar(i64);

impl Scalar {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A whole number.
    pub const fn whole(number: u32) -> Self {
        Self(number as i64 * 1000)
    }

    /// The nearest to a double; one that is not a number is nothing, and one that is too large the largest.
    pub fn from_f64(value: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, as it says above")]
        Self((value * 1000.0).round() as i64)
    }

    /// The double that stands for it in JSON.
    pub fn to_f64(self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "no machine has 2^53 thousandths of anything"
        )]
        {
            self.0 as f64 / 1000.0
        }
    }

    /// The whole number below, at least 0.
    pub fn floor(self) -> u32 {
        u32::try_from(self.0.max(0) / 1000).unwrap_or(u32::MAX)
    }

    /// Whether there is any.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }
}

impl Add for Scalar {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Scalar {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Scalar {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Scalar {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Scalar {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_f64().fmt(f)
    }
}

#[derive(Serialize, Deserialize)]
struct ScalarMessage {
    value: f64,
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ScalarMessage { value: self.to_f64() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_f64(ScalarMessage::deserialize(deserializer)?.value))
    }
}

/// Whole numbers from `begin` to `end`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first.
    pub begin: u64,
    /// The last.
    pub end: u64,
}

impl Range {
    /// One number.
    pub const fn one(number: u64) -> Self {
        Self { begin: number, end: number }
    }

    /// Whether a number lies in it.
    pub fn contains(&self, number: u64) -> bool {
        (self.begin..=self.end).contains(&number)
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.end.checked_sub(self.begin).map_or(0, |steps| steps.saturating_add(1))
    }

    /// Whether there is none: the end lies before the beginning.
    pub fn is_empty(&self) -> bool {
        self.end < self.begin
    }
}

/// Several of them; a message of its own in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ranges {
    /// In any order.
    #[serde(rename = "range", default)]
    pub ranges: Vec<Range>,
}

/// Words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Set {
    /// In any order.
    #[serde(rename = "item", default)]
    pub items: Vec<String>,
}

/// A text; a message of its own in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// What it says.
    pub value: String,
}

/// Which of its fields a resource or an attribute has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ValueType {
    /// A number.
    Scalar,
    /// Ranges of whole numbers.
    Ranges,
    /// Words.
    Set,
    /// A text; attributes only.
    Text,
}

/// What an operator says of an agent (`spec/mesos-http-api.md` §13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name; several may have one, which is discouraged.
    pub name: String,
    /// Which field is set.
    #[serde(rename = "type")]
    pub value_type: ValueType,
    /// If it is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalar: Option<Scalar>,
    /// If it is ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Ranges>,
    /// If it is words; no agent makes these from its flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<Set>,
    /// If it is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
}
