//! What several test suites share: a raw client, fixture applications, the JVM services.
