//! The driver's and executor's side of the shuffle service protocol.
