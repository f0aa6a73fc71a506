//! Spark's shuffle service protocol: bytes to values and back, without any I/O.
