//! The ids that travel on the wire, each a type of its own.
//!
//! Layouts: `spec/block-transfer.md` §2 and §4, `spec/wire-framing.md` §3.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as the client wrote it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id.into())
            }
        }

        // Sound because the derived `Eq`, `Hash` and `Ord` are those of the text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id! {
    /// An application: under Mesos the framework id, elsewhere what the cluster manager gave out.
    AppId
}
text_id! {
    /// An executor within its application.
    ExecId
}
number_id! {
    /// A shuffle within its application.
    ShuffleId(i32)
}
number_id! {
    /// A map output: the map partition index in Spark 2, the map task's attempt id from Spark 3 on.
    MapId(i64)
}
number_id! {
    /// A reduce partition.
    ReduceId(i32)
}
number_id! {
    /// The generation of a push-merged shuffle.
    ShuffleMergeId(i32)
}
number_id! {
    /// A stream of chunks on the connection that opened it.
    StreamId(i64)
}
number_id! {
    /// Matches an answer with its request.
    RequestId(i64)
}
