//! Mesos's ids: in JSON each is an object with a `value`, and a bare string is refused with 400
//! (`spec/mesos-http-api.md` §1).

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name {
            value: String,
        }

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.value
            }
        }

        impl From<String> for $name {
            fn from(value: String) -> Self {
                Self { value }
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                value.to_owned().into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.value)
            }
        }
    )*};
}

ids! {
    /// Given by the master to a framework that subscribes for the first time; kept for ever after.
    FrameworkId,
    /// Given by the master to an agent when it registers for the first time.
    AgentId,
    /// Given by the master to an offer, which can be used once.
    OfferId,
    /// Given by the framework to a task; unique among all that the master has not forgotten.
    TaskId,
    /// Given by the framework to an executor of its own.
    ExecutorId,
}
