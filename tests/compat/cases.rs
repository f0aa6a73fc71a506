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
    let all: Vec<Case> = [
        registration::cases(),
        drivers::cases(),
        fetch::cases(),
        blocks::cases(),
        push::cases(),
        hostile::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut names: Vec<_> = all.iter().map(|case| &case.name).collect();
    names.sort();
    names.windows(2).for_each(|two| assert_ne!(two[0], two[1], "two cases of one name"));
    all
}
