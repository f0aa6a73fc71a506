//! Rows to bytes and back.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shuffle_protocol::{AppId, ExecId};

use super::db::PastDamage;
use super::row::{Change, RecordId};
use crate::apps::Left;

/// Bytes of keys, and of values with their checksums; without a value the row goes.
pub(super) type Sealed = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Key {
    App(String),
    Executor(String, String),
    Dir(String, String),
    Record(u64),
    RecordDir(u64, u32),
    /// By a number of its own.
    Damage(u64),
}

/// A row of which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a row is damaged")]
pub(super) struct DamagedRow;

/// Adds a change to those that are written together; the last one of a row counts.
pub(super) fn seal_change(sealed: &mut Sealed, change: Change) {
    match change {
        Change::App(app, row) => seal(sealed, &Key::App(app.to_string()), row.as_ref()),
        Change::Executor(app, exec, row) => {
            seal(sealed, &Key::Executor(app.to_string(), exec.to_string()), row.as_ref());
        }
        Change::Dir(app, path, row) => {
            seal(sealed, &Key::Dir(app.to_string(), path), row.as_ref());
        }
        Change::Record(id, row) => seal(sealed, &Key::Record(id.0), row.as_ref()),
        Change::RecordDir(id, index, row) => {
            seal(sealed, &Key::RecordDir(id.0, index), row.as_ref());
        }
    }
}

pub(super) fn seal(sealed: &mut Sealed, key: &Key, row: Option<&impl Serialize>) {
    let key = json(key);
    let value = row.map(|row| {
        let row = json(row);
        let mut value = checksum(&key, &row).to_le_bytes().to_vec();
        value.extend(row);
        value
    });
    sealed.insert(key, value);
}

/// Puts a row where it belongs.
pub(super) fn open_row(
    left: &mut Left,
    past: &mut Vec<PastDamage>,
    key: &[u8],
    value: &[u8],
) -> Result<(), DamagedRow> {
    let (stored, row) = value.split_first_chunk().ok_or(DamagedRow)?;
    if u32::from_le_bytes(*stored) != checksum(key, row) {
        return Err(DamagedRow);
    }
    match parse(key)? {
        Key::App(app) => left.apps.push((AppId::from(app), parse(row)?)),
        Key::Executor(app, exec) => {
            left.executors.push((AppId::from(app), ExecId::from(exec), parse(row)?));
        }
        Key::Dir(app, path) => left.dirs.push((AppId::from(app), path, parse(row)?)),
        Key::Record(id) => left.records.push((RecordId(id), parse(row)?)),
        Key::RecordDir(id, index) => left.record_dirs.push((RecordId(id), index, parse(row)?)),
        Key::Damage(_) => past.push(parse(row)?),
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, DamagedRow> {
    serde_json::from_slice(text).map_err(|_| DamagedRow)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Fails for maps whose keys are no texts, and for what refuses to be serialised; rows are neither.
    serde_json::to_vec(value).expect("rows are plain data")
}

fn checksum(key: &[u8], row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(key);
    hasher.update(row);
    hasher.finalize()
}
