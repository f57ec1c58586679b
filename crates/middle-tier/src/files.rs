//! Open files: how many a middle tier needs, and whether the system grants them.

use seriatim_wire::http;

/// Open files apart from those of clients: standard streams, listeners, the runtime, readers of metrics, and
/// some that are still being closed.
const OTHERS: usize = 56 + http::READERS_MAX;

/// Open files for `clients_max` clients. A session has two connections. A connection without a session has one,
/// or two for a request to cancel, and there may be as many of these as of sessions.
const fn needed(clients_max: usize) -> usize {
    clients_max.saturating_mul(4).saturating_add(OTHERS)
}

/// Raises this process's limit of open files, if it is too low for `clients_max` clients.
///
/// # Errors
/// The system's hard limit is too low. The text states valid settings.
pub fn reserve_files(clients_max: usize) -> Result<(), String> {
    let needed = needed(clients_max);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes only the given structure.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(format!("the limit of open files is unknown: {}", std::io::Error::last_os_error()));
    }
    let wanted = libc::rlim_t::try_from(needed).unwrap_or(libc::RLIM_INFINITY);
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    if limit.rlim_max < wanted {
        let most = usize::try_from(limit.rlim_max).unwrap_or(usize::MAX).saturating_sub(OTHERS) / 4;
        let fewer = if most > 0 { format!(", or give --clients {most}") } else { String::new() };
        return Err(format!(
            "{clients_max} clients need {needed} open files, and the limit is {}: raise it (`ulimit -Hn`, \
             LimitNOFILE of systemd){fewer}",
            limit.rlim_max
        ));
    }
    limit.rlim_cur = wanted;
    // SAFETY: the call reads only the given structure.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(format!("the limit of open files cannot be raised: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_the_system_grants_are_refused_with_advice() {
        assert_eq!(reserve_files(1), Ok(()));
        let error = reserve_files(usize::MAX).expect_err("no system grants so many");
        assert!(error.contains("open files") && error.contains("--clients"), "{error}");
    }
}
