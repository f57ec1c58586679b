//! Streams: bytes from one worker to its logger, without a lock.
