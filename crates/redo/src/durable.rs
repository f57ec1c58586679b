//! The durable point: which epoch survives now, and who waits for it.
