//! Replay: the log as recovery reads it, epoch by epoch.
