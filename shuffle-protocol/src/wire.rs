//! Checked reading and writing of the wire's primitives (`spec/wire-framing.md` §1).
//!
//! Every count is held against the bytes that remain before anything is allocated, and arrays of
//! strings and bitmaps stay what they are: bytes of the frame they came in.

use std::fmt;
use std::str::Utf8Chunk;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// What a peer wrote that cannot be read. Always the peer's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// A field is longer than what is left of the message.
    #[error("{what} needs {needed} bytes, {remaining} remain")]
    Truncated {
        /// The field.
        what: &'static str,
        /// Bytes the field needs at least.
        needed: u64,
        /// Bytes left in the message.
        remaining: usize,
    },
    /// A length or count below zero.
    #[error("{what} has the negative length {length}")]
    NegativeLength {
        /// The field.
        what: &'static str,
        /// The length as read.
        length: i32,
    },
    /// A name or path that is not UTF-8.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// The field.
        what: &'static str,
    },
    /// A value outside the field's range.
    #[error("{what} cannot be {value}")]
    OutOfRange {
        /// The field.
        what: &'static str,
        /// The value as read.
        value: i64,
    },
    /// Counts that do not fit each other.
    #[error("{what}: {left} entries against {right}")]
    Mismatch {
        /// The fields.
        what: &'static str,
        /// Entries on one side.
        left: u64,
        /// Entries on the other side.
        right: u64,
    },
}

/// Reads primitives off the front of a message. Nothing is copied but what has to become owned text.
#[derive(Debug)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads from the front of `message`.
    #[must_use]
    pub fn new(message: Bytes) -> Self {
        Self { rest: message }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Everything that was not read yet.
    #[must_use]
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    fn need(&self, what: &'static str, needed: usize) -> Result<(), WireError> {
        if self.rest.len() < needed {
            return Err(WireError::Truncated {
                what,
                needed: needed as u64,
                remaining: self.rest.len(),
            });
        }
        Ok(())
    }

    /// A signed byte.
    pub fn i8(&mut self, what: &'static str) -> Result<i8, WireError> {
        self.need(what, 1)?;
        Ok(self.rest.get_i8())
    }

    /// One byte, any value but zero is true.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, WireError> {
        Ok(self.i8(what)? != 0)
    }

    /// A big-endian 32-bit number.
    pub fn i32(&mut self, what: &'static str) -> Result<i32, WireError> {
        self.need(what, 4)?;
        Ok(self.rest.get_i32())
    }

    /// A big-endian 64-bit number.
    pub fn i64(&mut self, what: &'static str) -> Result<i64, WireError> {
        self.need(what, 8)?;
        Ok(self.rest.get_i64())
    }

    /// A count of elements that take at least `element` bytes each, held against what remains.
    pub fn count(&mut self, what: &'static str, element: usize) -> Result<usize, WireError> {
        let count = self.i32(what)?;
        let count = usize::try_from(count)
            .map_err(|_| WireError::NegativeLength { what, length: count })?;
        let needed = count.saturating_mul(element);
        self.need(what, needed)?;
        Ok(count)
    }

    /// Bytes with a 32-bit length in front.
    pub fn bytes(&mut self, what: &'static str) -> Result<Bytes, WireError> {
        let length = self.count(what, 1)?;
        Ok(self.rest.split_to(length))
    }

    /// Text with a 32-bit byte length in front; names and paths, so it must be UTF-8.
    pub fn string(&mut self, what: &'static str) -> Result<String, WireError> {
        let bytes = self.bytes(what)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| WireError::NotUtf8 { what })?;
        Ok(text.to_owned())
    }

    /// Text for people, such as an error: bytes that are not UTF-8 are shown as U+FFFD.
    pub fn lossy_string(&mut self, what: &'static str) -> Result<String, WireError> {
        let bytes = self.bytes(what)?;
        // Measured first: text that grows as it goes would take up to six times its bytes.
        let invalid = |chunk: &Utf8Chunk<'_>| !chunk.invalid().is_empty();
        let length = bytes.utf8_chunks().map(|chunk| {
            let marks = usize::from(invalid(&chunk));
            chunk.valid().len() + marks * char::REPLACEMENT_CHARACTER.len_utf8()
        });
        let mut text = String::with_capacity(length.sum());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            if invalid(&chunk) {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Ok(text)
    }

    /// An array of texts, checked now and kept as the bytes they came in.
    pub fn strings(&mut self, what: &'static str) -> Result<StringArray, WireError> {
        let count = self.count(what, 4)?;
        let all = self.rest.clone();
        for _ in 0..count {
            let text = self.bytes(what)?;
            std::str::from_utf8(&text).map_err(|_| WireError::NotUtf8 { what })?;
        }
        let raw = all.slice(..all.len() - self.rest.len());
        Ok(StringArray { count, raw })
    }

    /// An array of 32-bit numbers.
    pub fn i32s(&mut self, what: &'static str) -> Result<Vec<i32>, WireError> {
        let count = self.count(what, 4)?;
        Ok((0..count).map(|_| self.rest.get_i32()).collect())
    }

    /// An array of 64-bit numbers.
    pub fn i64s(&mut self, what: &'static str) -> Result<Vec<i64>, WireError> {
        let count = self.count(what, 8)?;
        Ok((0..count).map(|_| self.rest.get_i64()).collect())
    }

    /// An array of arrays of 32-bit numbers.
    pub fn i32_arrays(&mut self, what: &'static str) -> Result<IntArrays, WireError> {
        let count = self.count(what, 4)?;
        let mut arrays = IntArrays { values: Vec::new(), ends: Vec::with_capacity(count) };
        for _ in 0..count {
            let length = self.count(what, 4)?;
            arrays.values.extend((0..length).map(|_| self.rest.get_i32()));
            arrays.ends.push(arrays.values.len());
        }
        Ok(arrays)
    }

    /// One bitmap; its length follows from its own headers.
    pub fn bitmap(&mut self, what: &'static str) -> Result<Bitmap, WireError> {
        let length = Bitmap::serialized_length(what, &self.rest)?;
        Ok(Bitmap(self.rest.split_to(length)))
    }

    /// An array of bitmaps. The smallest bitmap takes eight bytes.
    pub fn bitmaps(&mut self, what: &'static str) -> Result<Vec<Bitmap>, WireError> {
        let count = self.count(what, 8)?;
        let mut bitmaps = Vec::with_capacity(count);
        for _ in 0..count {
            bitmaps.push(self.bitmap(what)?);
        }
        Ok(bitmaps)
    }
}

/// Writes primitives. The counterpart of [`Reader`].
pub trait WriteWire: BufMut {
    /// A length or count. Messages stay below 2 GiB by the frame rule.
    fn put_count(&mut self, count: usize) {
        let count = i32::try_from(count).expect("a message is below 2 GiB, so are its parts");
        self.put_i32(count);
    }

    /// One byte, 0 or 1.
    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    /// Bytes with their length in front.
    fn put_bytes_field(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.put_slice(bytes);
    }

    /// Text with its byte length in front.
    fn put_string(&mut self, text: &str) {
        self.put_bytes_field(text.as_bytes());
    }

    /// An array of texts.
    fn put_strings(&mut self, texts: &StringArray) {
        self.put_count(texts.count);
        self.put_slice(&texts.raw);
    }

    /// An array of 32-bit numbers.
    fn put_i32s(&mut self, values: &[i32]) {
        self.put_count(values.len());
        values.iter().for_each(|value| self.put_i32(*value));
    }

    /// An array of 64-bit numbers.
    fn put_i64s(&mut self, values: &[i64]) {
        self.put_count(values.len());
        values.iter().for_each(|value| self.put_i64(*value));
    }

    /// An array of arrays of 32-bit numbers.
    fn put_i32_arrays(&mut self, arrays: &IntArrays) {
        self.put_count(arrays.len());
        arrays.iter().for_each(|array| self.put_i32s(array));
    }

    /// An array of bitmaps.
    fn put_bitmaps(&mut self, bitmaps: &[Bitmap]) {
        self.put_count(bitmaps.len());
        bitmaps.iter().for_each(|bitmap| self.put_slice(&bitmap.0));
    }
}

impl WriteWire for BytesMut {}

/// An array of texts as it stands in a message: checked, not unpacked, so that a list of a million
/// ids costs what it cost on the wire.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StringArray {
    count: usize,
    raw: Bytes,
}

impl StringArray {
    /// Number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without any text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut rest: &[u8] = &self.raw;
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (text, tail) = tail.split_at_checked(length)?;
            rest = tail;
            std::str::from_utf8(text).ok()
        })
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut raw = BytesMut::new();
        let mut count = 0;
        for text in texts {
            raw.put_string(text.as_ref());
            count += 1;
        }
        Self { count, raw: raw.freeze() }
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An array of arrays of 32-bit numbers, in two flat vectors.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct IntArrays {
    values: Vec<i32>,
    /// Where each array ends in `values`.
    ends: Vec<usize>,
}

impl IntArrays {
    /// Number of arrays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without any array.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The numbers of all arrays, one after the other.
    #[must_use]
    pub fn values(&self) -> &[i32] {
        &self.values
    }

    /// The arrays in order.
    pub fn iter(&self) -> impl Iterator<Item = &[i32]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.values[std::mem::replace(&mut start, end)..end])
    }

    /// The array that number `position` of [`IntArrays::values`] stands in.
    #[must_use]
    pub fn array_of(&self, position: usize) -> usize {
        self.ends.partition_point(|&end| end <= position)
    }
}

impl<A: AsRef<[i32]>> FromIterator<A> for IntArrays {
    fn from_iter<I: IntoIterator<Item = A>>(arrays: I) -> Self {
        let mut made = Self::default();
        for array in arrays {
            made.values.extend_from_slice(array.as_ref());
            made.ends.push(made.values.len());
        }
        made
    }
}

impl fmt::Debug for IntArrays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A Roaring bitmap in the portable serialisation, kept as its bytes.
///
/// It is not unpacked here: a run container of four bytes would become eight kilobytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Bitmap(Bytes);

impl Bitmap {
    const COOKIE: u32 = 12346;
    const COOKIE_WITH_RUNS: u32 = 12347;
    /// Below this number of containers the form with runs carries no table of offsets.
    const NO_OFFSET_THRESHOLD: usize = 4;
    /// A container with more values than this is a plain bitmap.
    const MAX_ARRAY: usize = 4096;
    const BITMAP_CONTAINER_BYTES: usize = 8192;

    /// The portable serialisation.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Length of the serialised bitmap that `bytes` begins with, from its headers.
    fn serialized_length(what: &'static str, bytes: &[u8]) -> Result<usize, WireError> {
        let need = |needed: usize| WireError::Truncated {
            what,
            needed: needed as u64,
            remaining: bytes.len(),
        };
        let u16_at = |at: usize| -> Result<usize, WireError> {
            let pair = bytes.get(at..at + 2).ok_or_else(|| need(at + 2))?;
            Ok(usize::from(u16::from_le_bytes([pair[0], pair[1]])))
        };
        let cookie_low = u16_at(0)?;
        let cookie_high = u16_at(2)?;
        let cookie = u32::try_from(cookie_low | cookie_high << 16).expect("two 16-bit halves");
        let (containers, runs_at) = if cookie == Self::COOKIE {
            (u16_at(4)? | u16_at(6)? << 16, None)
        } else if cookie & 0xFFFF == Self::COOKIE_WITH_RUNS {
            (cookie_high + 1, Some(4))
        } else {
            return Err(WireError::OutOfRange { what, value: i64::from(cookie) });
        };
        if containers > 1 << 16 {
            let value = i64::try_from(containers).unwrap_or(i64::MAX);
            return Err(WireError::OutOfRange { what, value });
        }
        let flags = if runs_at.is_some() { containers.div_ceil(8) } else { 0 };
        let descriptions = runs_at.map_or(8, |at| at + flags);
        let offsets = if runs_at.is_none() || containers >= Self::NO_OFFSET_THRESHOLD {
            4 * containers
        } else {
            0
        };
        let mut end = descriptions + 4 * containers + offsets;
        for container in 0..containers {
            let cardinality = u16_at(descriptions + 4 * container + 2)? + 1;
            let is_run = match runs_at {
                Some(at) => {
                    let byte = bytes.get(at + container / 8).ok_or_else(|| need(at + flags))?;
                    byte >> (container % 8) & 1 == 1
                }
                None => false,
            };
            end += if is_run {
                2 + 4 * u16_at(end)?
            } else if cardinality > Self::MAX_ARRAY {
                Self::BITMAP_CONTAINER_BYTES
            } else {
                2 * cardinality
            };
        }
        if bytes.len() < end { Err(need(end)) } else { Ok(end) }
    }
}

impl TryFrom<Bytes> for Bitmap {
    type Error = WireError;

    fn try_from(bytes: Bytes) -> Result<Self, WireError> {
        Reader::new(bytes).bitmap("bitmap")
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bitmap({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_people_is_what_the_standard_library_makes_of_it() {
        let parts: [&[u8]; 6] =
            [b"a", "\u{e9}".as_bytes(), b"\xff", b"\xf0\x9f", b"\xe2\x82", b"\x80"];
        for i in 0..6_usize.pow(4) {
            let bytes = [i, i / 6, i / 36, i / 216].map(|i| parts[i % 6]).concat();
            let mut field = BytesMut::new();
            field.put_bytes_field(&bytes);
            let text = Reader::new(field.freeze()).lossy_string("error").unwrap();
            assert_eq!(text, String::from_utf8_lossy(&bytes));
            assert_eq!(text.capacity(), text.len());
        }
    }

    #[test]
    fn names_are_utf_8() {
        let field = Bytes::from_static(b"\0\0\0\x01\xff");
        let not_utf8 = Err(WireError::NotUtf8 { what: "appId" });
        assert_eq!(Reader::new(field.clone()).string("appId"), not_utf8);
        let array = [&[0, 0, 0, 1], &field[..]].concat();
        let not_utf8 = Err(WireError::NotUtf8 { what: "appId" });
        assert_eq!(Reader::new(array.into()).strings("appId"), not_utf8);
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let read = |byte: u8| Reader::new(Bytes::copy_from_slice(&[byte])).bool("flag").unwrap();
        assert!(!read(0));
        assert!((1..=u8::MAX).all(read));
    }

    #[test]
    fn a_position_has_its_array() {
        let arrays: IntArrays = [&[][..], &[1, 2], &[], &[3]].into_iter().collect();
        let found: Vec<_> = (0..4).map(|position| arrays.array_of(position)).collect();
        assert_eq!(found, [1, 1, 3, 4], "the last one is past the end");
    }
}
