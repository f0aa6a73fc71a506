//! The file: opened, read as a whole at the start, and written in transactions.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};
use serde::{Deserialize, Serialize};

use super::row::WallMillis;
use super::rows::{Key, Sealed, open_row, seal};
use crate::apps::Left;
use crate::state::wall_now;

const FILE: &str = "registry.redb";
/// The version of the format that is written. A field that is added to a row needs no new one, as long
/// as rows without it can be read.
const VERSION: u64 = 1;
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const VERSION_KEY: &str = "version";
const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// How many earlier damages are remembered.
const DAMAGES: usize = 10;

/// Why the store cannot be used. The operator is at fault, or the disk.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory or the file in it cannot be made, opened or renamed.
    #[error("state directory {}: {source}; it must be a directory that this user may write", dir.display())]
    Dir {
        /// Which one.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has it open.
    #[error(
        "{} is in use: another shuffled runs with this state directory; give each its own \
         (shuffled.state.dir)",
        file.display()
    )]
    InUse {
        /// Which one.
        file: PathBuf,
    },
    /// A later release wrote it.
    #[error(
        "{} was written by a later release of shuffled (format {found}, this one knows {VERSION}); \
         start that release, or move the file away to begin with nothing registered",
        file.display()
    )]
    Newer {
        /// Which one.
        file: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A transaction failed.
    #[error("cannot write {}: {why}", file.display())]
    Write {
        /// Which one.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What was wrong with the file at this start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where it is now.
    pub set_aside: PathBuf,
    /// What was wrong.
    pub why: String,
    /// Rows that could not be carried over; nothing when none could and nobody knows how many there were.
    pub lost_rows: Option<u64>,
}

/// What was wrong with it at an earlier start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastDamage {
    /// When that was found.
    pub at: WallMillis,
    /// What was wrong.
    pub why: String,
    /// Rows that were lost; nothing for all of them.
    pub lost_rows: Option<u64>,
}

/// A store and what was in it.
#[derive(Debug)]
pub struct Opened {
    /// To be written.
    pub store: Store,
    /// What an earlier run left.
    pub loaded: Left,
    /// What was wrong with it.
    pub damage: Option<Damage>,
    /// What was wrong with it at earlier starts, oldest first.
    pub past: Vec<PastDamage>,
}

pub(super) type Open = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// The open file.
pub struct Store {
    file: PathBuf,
    open: Open,
    /// Nothing after a failure: the database does not take any more then, and is opened anew.
    database: Option<Database>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("file", &self.file).finish_non_exhaustive()
    }
}

/// What reading a file came to.
enum Read {
    Whole(Database, Left, Vec<PastDamage>),
    Newer(u64),
    Damaged { why: String, salvaged: Option<Salvaged> },
}

/// What is whole in a damaged file.
#[derive(Default)]
struct Salvaged {
    left: Left,
    past: Vec<PastDamage>,
    rows: Sealed,
    lost: u64,
}

impl Store {
    /// Opens the store in `dir`, which is made if it is not there, and reads it. One that is damaged is
    /// set aside; what is whole in it is carried over. Blocking.
    ///
    /// # Errors
    /// See [`StoreError`]. A damaged file is none.
    pub fn open(dir: &Path) -> Result<Opened, StoreError> {
        let in_dir = |source| StoreError::Dir { dir: dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(in_dir)?;
        let file = dir.join(FILE);
        let open: Open = Box::new({
            let file = file.clone();
            move || {
                let file = open_file(&file).map_err(|e| DatabaseError::Storage(e.into()))?;
                Builder::new().create_with_backend(FileBackend::new(file)?)
            }
        });
        // What is not a file of ours to open is the operator's affair and no damage.
        open_file(&file).map_err(in_dir)?;
        let (why, salvaged) = match guarded(|| read(&open)) {
            Ok(Err(DatabaseError::DatabaseAlreadyOpen)) => return Err(StoreError::InUse { file }),
            Ok(Ok(Read::Newer(found))) => return Err(StoreError::Newer { file, found }),
            Ok(Ok(Read::Whole(database, loaded, past))) => {
                let store = Self { file, open, database: Some(database) };
                return Ok(Opened { store, loaded, damage: None, past });
            }
            Ok(Ok(Read::Damaged { why, salvaged })) => (why, salvaged),
            Ok(Err(error)) => (error.to_string(), None),
            Err(panic) => (panic, None),
        };
        let set_aside = set_aside(&file).map_err(in_dir)?;
        let lost_rows = salvaged.as_ref().map(|salvaged| salvaged.lost);
        let Salvaged { left, mut past, rows: mut carried, .. } = salvaged.unwrap_or_default();
        let now = PastDamage { at: wall_now(), why: why.clone(), lost_rows };
        let forgotten = past.len().saturating_sub(DAMAGES - 1);
        for old in past.drain(..forgotten) {
            seal(&mut carried, &Key::Damage(old.at), None::<&PastDamage>);
        }
        seal(&mut carried, &Key::Damage(now.at), Some(&now));
        let mut store = Self { file, open, database: None };
        store.write(&carried)?;
        let damage = Some(Damage { set_aside, why, lost_rows });
        Ok(Opened { store, loaded: left, damage, past })
    }

    /// A store over anything that can be opened.
    #[cfg(test)]
    pub(super) fn over(open: Open) -> Self {
        Self { file: PathBuf::from("test"), open, database: None }
    }

    #[cfg(test)]
    pub(super) fn read_all(&mut self) -> Result<Left, String> {
        match read(&self.open).map_err(|error| error.to_string())? {
            Read::Whole(_, left, _) => Ok(left),
            Read::Damaged { why, .. } => Err(why),
            Read::Newer(version) => Err(version.to_string()),
        }
    }

    /// Writes rows in one transaction; they are on disk when it returns.
    ///
    /// # Errors
    /// [`StoreError::Write`]; then none of them is written, and it may be tried again.
    pub(super) fn write(&mut self, rows: &Sealed) -> Result<(), StoreError> {
        let result = guarded(|| {
            let database = match self.database.take() {
                Some(database) => database,
                None => (self.open)().map_err(|error| error.to_string())?,
            };
            commit(&database, rows).map_err(|error| error.to_string())?;
            Ok(database)
        });
        match result.and_then(|result: Result<Database, String>| result) {
            Ok(database) => {
                self.database = Some(database);
                Ok(())
            }
            Err(why) => Err(StoreError::Write { file: self.file.clone(), why }),
        }
    }
}

/// Readable for the owner alone from its first moment on, whatever the umask.
fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Damaged pages are found by checksums, but a panic of the database must not be the end of the service
/// either.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        format!("the database panicked: {text}")
    })
}

fn read(open: &Open) -> Result<Read, DatabaseError> {
    let mut database = open()?;
    // Reads the file once; without it a damaged page may hide rows without a trace.
    let intact = database.check_integrity()?;
    let read = rows_of(&database);
    Ok(match read {
        Ok(Rows { version, .. }) if version > VERSION => Read::Newer(version),
        Ok(Rows { rows, .. }) => {
            let mut salvaged = Salvaged::default();
            for (key, value) in rows {
                match open_row(&mut salvaged.left, &mut salvaged.past, &key, &value) {
                    Ok(()) => {
                        salvaged.rows.insert(key, Some(value));
                    }
                    Err(_) => salvaged.lost += 1,
                }
            }
            sort(&mut salvaged);
            match (intact, salvaged.lost) {
                (true, 0) => Read::Whole(database, salvaged.left, salvaged.past),
                (_, 0) => {
                    Read::Damaged { why: "pages are damaged".to_owned(), salvaged: Some(salvaged) }
                }
                (_, lost) => Read::Damaged {
                    why: format!("{lost} rows are damaged"),
                    salvaged: Some(salvaged),
                },
            }
        }
        Err(error) => Read::Damaged { why: error.to_string(), salvaged: None },
    })
}

/// In the order in which they are taken up: the keys' own is that of their texts.
fn sort(salvaged: &mut Salvaged) {
    salvaged.left.records.sort_by_key(|(id, _)| *id);
    salvaged.left.record_dirs.sort_by_key(|(id, index, _)| (*id, *index));
    salvaged.past.sort_by_key(|damage| damage.at);
}

struct Rows {
    version: u64,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

fn rows_of(database: &Database) -> Result<Rows, redb::Error> {
    let transaction = database.begin_read()?;
    let version = match transaction.open_table(META) {
        Ok(meta) => meta.get(VERSION_KEY)?.map(|version| version.value()),
        // A file that was made and not yet written.
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let Some(version) = version else { return Ok(Rows { version: VERSION, rows: Vec::new() }) };
    let mut rows = Vec::new();
    match transaction.open_table(ROWS) {
        Ok(table) => {
            for row in table.iter()? {
                let (key, value) = row?;
                rows.push((key.value().to_vec(), value.value().to_vec()));
            }
        }
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Rows { version, rows })
}

fn commit(database: &Database, rows: &Sealed) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        if meta.get(VERSION_KEY)?.map(|version| version.value()) != Some(VERSION) {
            meta.insert(VERSION_KEY, VERSION)?;
        }
        let mut table = transaction.open_table(ROWS)?;
        for (key, value) in rows {
            match value {
                Some(value) => drop(table.insert(key.as_slice(), value.as_slice())?),
                None => drop(table.remove(key.as_slice())?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Gives a damaged file a name under which nothing overwrites it.
fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let seconds = wall_now() / 1000;
    for number in 0.. {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let aside = file.with_file_name(format!("{FILE}.damaged-{seconds}{suffix}"));
        if !fs::exists(&aside)? {
            fs::rename(file, &aside)?;
            return Ok(aside);
        }
    }
    unreachable!("there are more numbers than files")
}
