//! The table.

mod blocks;
mod drivers;
mod fetch;
mod hostile;
mod push;
mod registration;

use crate::case::Case;

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let all = [
        registration::cases(),
        drivers::cases(),
        fetch::cases(),
        blocks::cases(),
        push::cases(),
        hostile::cases(),
    ]
    .concat_all();
    let mut names: Vec<_> = all.iter().map(|case| &case.name).collect();
    names.sort();
    names.windows(2).for_each(|two| assert_ne!(two[0], two[1], "two cases of one name"));
    all
}

trait ConcatAll {
    fn concat_all(self) -> Vec<Case>;
}

impl<const N: usize> ConcatAll for [Vec<Case>; N] {
    fn concat_all(self) -> Vec<Case> {
        self.into_iter().flatten().collect()
    }
}
