//! The shuffle service: registry, liveness, block serving, cleanup, admin HTTP.
