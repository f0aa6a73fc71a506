//! Where a block file lies: Spark's hash from a file name to a local dir and a sub dir.
//!
//! Source: `spec/on-disk.md` §1. The rule is the same in every Spark version, and executors use
//! it for writing, so it is frozen.

use std::fmt;

/// The layout of one executor: how many local dirs it registered and how many sub dirs each has.
///
/// The order of the local dirs is part of the layout and must stay as registered, because
/// [`Place::dir`] is an index into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    dirs: u32,
    sub_dirs: u32,
}

impl Layout {
    /// A layout of `dirs` local dirs with `sub_dirs` sub dirs each (`subDirsPerLocalDir`, 64
    /// unless `spark.diskStore.subDirectories` says otherwise).
    ///
    /// # Errors
    /// No local dir, a sub dir count that is not positive (both would be a division by zero in
    /// the JVM), or more local dirs than a Java array holds. The executor that registered such
    /// a layout is at fault.
    pub fn new(dirs: usize, sub_dirs: i32) -> Result<Self, LayoutError> {
        if dirs == 0 {
            return Err(LayoutError::NoLocalDirs);
        }
        if i32::try_from(dirs).is_err() {
            return Err(LayoutError::TooManyLocalDirs(dirs));
        }
        let dirs = u32::try_from(dirs).map_err(|_| LayoutError::TooManyLocalDirs(dirs))?;
        match u32::try_from(sub_dirs) {
            Ok(sub_dirs) if sub_dirs > 0 => Ok(Self { dirs, sub_dirs }),
            _ => Err(LayoutError::SubDirs(sub_dirs)),
        }
    }

    /// Where the file named `name` lies.
    #[must_use]
    pub fn place(&self, name: &str) -> Place {
        let hash = non_negative_hash(name);
        Place {
            // Below `dirs`, which came from a usize.
            dir: usize::try_from(hash % self.dirs).unwrap_or(usize::MAX),
            sub: SubDir((hash / self.dirs) % self.sub_dirs),
        }
    }
}

/// The answer of [`Layout::place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index into the local dirs, in the order of their registration.
    pub dir: usize,
    /// The sub dir below that local dir.
    pub sub: SubDir,
}

/// A sub dir; shown as its directory name: lower-case hex, at least two digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubDir(pub u32);

impl fmt::Display for SubDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

/// A layout in which no file has a place. The registering executor is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// The list of local dirs is empty.
    #[error("the executor registered no local dirs")]
    NoLocalDirs,
    /// More local dirs than a Java array holds.
    #[error("the executor registered {0} local dirs")]
    TooManyLocalDirs(usize),
    /// `subDirsPerLocalDir` is zero or negative.
    #[error("the executor registered {0} sub dirs per local dir, which must be positive")]
    SubDirs(i32),
}

/// Java's `String.hashCode`: over UTF-16 code units, wrapping.
fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Spark's `nonNegativeHash`: the absolute value, and 0 for the one value that has none.
fn non_negative_hash(text: &str) -> u32 {
    match java_string_hash(text) {
        i32::MIN => 0,
        hash => hash.unsigned_abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The table of `spec/on-disk.md` §1.
    #[test]
    fn spec_vectors() {
        #[rustfmt::skip]
        let vectors: [(&str, usize, i32, i32, u32, usize, &str); 9] = [
            ("shuffle_0_0_0.data", 1, 64, 581_811_660, 581_811_660, 0, "0c"),
            ("shuffle_0_0_0.index", 1, 64, 861_282_032, 861_282_032, 0, "30"),
            ("shuffle_0_0_0.data", 3, 64, 581_811_660, 581_811_660, 0, "04"),
            ("shuffle_0_0_0.index", 3, 64, 861_282_032, 861_282_032, 2, "3a"),
            ("shuffle_12_345_0.data", 4, 64, 1_315_304_811, 1_315_304_811, 3, "1a"),
            ("shuffle_12_345_0.index", 4, 64, 2_124_733_233, 2_124_733_233, 1, "0c"),
            ("rdd_7_3", 2, 64, 1_054_357_726, 1_054_357_726, 0, "2f"),
            ("shuffle_0_0_0.checksum.ADLER32", 2, 64, -103_986_100, 103_986_100, 0, "1a"),
            ("polygenelubricants", 2, 64, i32::MIN, 0, 0, "00"),
        ];
        for (name, dirs, sub_dirs, hash, absolute, dir, sub) in vectors {
            assert_eq!(java_string_hash(name), hash, "{name}");
            assert_eq!(non_negative_hash(name), absolute, "{name}");
            let place = Layout::new(dirs, sub_dirs).unwrap().place(name);
            assert_eq!((place.dir, place.sub.to_string().as_str()), (dir, sub), "{name}");
        }
    }

    #[test]
    fn hash_is_over_utf16_units() {
        // U+1F600 is the surrogate pair D83D DE00.
        assert_eq!(java_string_hash("\u{1F600}"), 0xD83D * 31 + 0xDE00);
    }

    #[test]
    fn sub_dir_names() {
        let names = [0, 255, 256].map(|n| SubDir(n).to_string());
        assert_eq!(names, ["00", "ff", "100"]);
    }

    #[test]
    fn impossible_layouts_are_errors() {
        assert_eq!(Layout::new(0, 64), Err(LayoutError::NoLocalDirs));
        assert_eq!(Layout::new(1, 0), Err(LayoutError::SubDirs(0)));
        assert_eq!(Layout::new(1, -1), Err(LayoutError::SubDirs(-1)));
        let many = 1usize << 31;
        assert_eq!(Layout::new(many, 64), Err(LayoutError::TooManyLocalDirs(many)));
    }

    proptest! {
        #[test]
        fn every_place_is_within_the_layout(name in any::<String>(), dirs in 1usize..9, subs in 1i32..) {
            let place = Layout::new(dirs, subs).unwrap().place(&name);
            prop_assert!(place.dir < dirs);
            prop_assert!(i64::from(place.sub.0) < i64::from(subs));
        }
    }
}
