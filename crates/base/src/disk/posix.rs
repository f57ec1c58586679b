//! System calls relative to a directory's handle, which the standard library lacks.
//!
//! Invariant: each function is one call, repeated while a signal interrupts it. A relative path starts at the
//! directory, an absolute one at the root.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The working directory of the process, for paths that are not below a held directory.
pub(super) const WORKING: RawFd = libc::AT_FDCWD;

/// Flags of open(2).
pub(super) mod flags {
    pub(crate) const READ: i32 = libc::O_RDONLY;
    pub(crate) const WRITE: i32 = libc::O_RDWR;
    pub(crate) const CREATE: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    pub(crate) const FIND_OR_CREATE: i32 = libc::O_WRONLY | libc::O_CREAT;
    pub(crate) const DIRECTORY: i32 = libc::O_RDONLY | libc::O_DIRECTORY;
    pub(crate) const DIRECTORY_NO_LINK: i32 = DIRECTORY | libc::O_NOFOLLOW;
}

/// The result of stat(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) is_dir: bool,
    pub(super) bytes: u64,
    /// Device and inode, which no other file has while this one is open.
    pub(super) id: (u64, u64),
}

/// The path with a terminating zero byte. An empty path means the directory itself, `.`.
fn terminated(path: &Path) -> io::Result<CString> {
    let bytes = if path.as_os_str().is_empty() { b"." } else { path.as_os_str().as_bytes() };
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path contains a zero byte"))
}

/// Repeats a call while a signal interrupts it.
fn call(mut call: impl FnMut() -> libc::c_int) -> io::Result<libc::c_int> {
    loop {
        let result = call();
        if result != -1 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// openat(2). The descriptor is closed on exec.
pub(super) fn open(dir: RawFd, path: &Path, flags: i32) -> io::Result<File> {
    let path = terminated(path)?;
    // SAFETY: the path is a string that ends with a zero byte.
    let opened = call(|| unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC, 0o666) })?;
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { File::from_raw_fd(opened) })
}

/// mkdirat(2).
pub(super) fn create_dir(dir: RawFd, path: &Path) -> io::Result<()> {
    let path = terminated(path)?;
    // SAFETY: as in `open`.
    call(|| unsafe { libc::mkdirat(dir, path.as_ptr(), 0o777) }).map(drop)
}

/// renameat(2).
pub(super) fn rename(dir: RawFd, from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (terminated(from)?, terminated(to)?);
    // SAFETY: as in `open`.
    call(|| unsafe { libc::renameat(dir, from.as_ptr(), dir, to.as_ptr()) }).map(drop)
}

/// renameat2(2) from the working directory, which fails with `AlreadyExists` if the new name is taken. It fails with
/// `Unsupported` where the file system or the operating system has no such call.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (terminated(from)?, terminated(to)?);
    // SAFETY: as in `open`.
    #[cfg(target_os = "linux")]
    let renamed =
        call(|| unsafe { libc::renameat2(WORKING, from.as_ptr(), WORKING, to.as_ptr(), libc::RENAME_NOREPLACE) });
    // SAFETY: as in `open`.
    #[cfg(target_vendor = "apple")]
    let renamed = call(|| unsafe { libc::renamex_np(from.as_ptr(), to.as_ptr(), libc::RENAME_EXCL) });
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    let renamed: io::Result<()> = {
        let _ = (from, to);
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    };
    renamed.map(drop).map_err(|error| match error.raw_os_error() {
        // A file system that does not know the flag returns `EINVAL`.
        Some(libc::ENOSYS | libc::EINVAL | libc::ENOTSUP) => io::ErrorKind::Unsupported.into(),
        _ => error,
    })
}

/// unlinkat(2) of a file or a link.
pub(super) fn remove_file(dir: RawFd, path: &Path) -> io::Result<()> {
    let path = terminated(path)?;
    // SAFETY: as in `open`.
    call(|| unsafe { libc::unlinkat(dir, path.as_ptr(), 0) }).map(drop)
}

/// unlinkat(2) of an empty directory.
pub(super) fn remove_dir(dir: RawFd, path: &Path) -> io::Result<()> {
    let path = terminated(path)?;
    // SAFETY: as in `open`.
    call(|| unsafe { libc::unlinkat(dir, path.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
}

/// fstatat(2). Follows links.
pub(super) fn status(dir: RawFd, path: &Path) -> io::Result<Status> {
    let path = terminated(path)?;
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: as in `open`; the buffer has room for the result.
    call(|| unsafe { libc::fstatat(dir, path.as_ptr(), status.as_mut_ptr(), 0) })?;
    // SAFETY: the call succeeded, so it initialized the buffer.
    let status = unsafe { status.assume_init() };
    let is_dir = status.st_mode & libc::S_IFMT == libc::S_IFDIR;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    Ok(Status { is_dir, bytes: status.st_size as u64, id: (status.st_dev as u64, status.st_ino as u64) })
}

/// Clears `errno`, by which readdir(3) distinguishes the end from an error.
fn clear_errno() {
    // SAFETY: the address is that of the thread's own `errno`.
    #[cfg(target_os = "linux")]
    unsafe {
        *libc::__errno_location() = 0;
    }
    // SAFETY: as above.
    #[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
    unsafe {
        *libc::__error() = 0;
    }
}

/// The names in a directory, without `.` and `..`.
pub(super) fn names(dir: File) -> io::Result<Vec<OsString>> {
    let dir = dir.into_raw_fd();
    // SAFETY: the descriptor is open and owned by this function. If the call succeeds, the stream owns it.
    let stream = unsafe { libc::fdopendir(dir) };
    if stream.is_null() {
        let error = io::Error::last_os_error();
        // SAFETY: this function still owns it.
        drop(unsafe { File::from_raw_fd(dir) });
        return Err(error);
    }
    let mut names = Vec::new();
    let ended = loop {
        clear_errno();
        // SAFETY: the stream is open, and only this thread uses it.
        let entry = unsafe { libc::readdir(stream) };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            break if error.raw_os_error() == Some(0) { Ok(()) } else { Err(error) };
        }
        // SAFETY: the entry is valid until the next call, and its name ends with a zero byte.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    };
    // SAFETY: the stream is open, and not used afterwards.
    unsafe { libc::closedir(stream) };
    ended.map(|()| names)
}

/// Removes a directory with its contents. Does not follow a link to a directory.
pub(super) fn remove_dir_all(dir: RawFd, path: &Path) -> io::Result<()> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let inner = open(dir, path, flags::DIRECTORY_NO_LINK)?;
    for name in names(inner.try_clone()?)? {
        let name = Path::new(OsStr::new(&name));
        let removed = match remove_file(inner.as_raw_fd(), name) {
            // For a directory, Linux returns `EISDIR` and POSIX requires `EPERM`.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {
                match remove_dir_all(inner.as_raw_fd(), name) {
                    // It is a file that may not be removed.
                    Err(other) if other.kind() == io::ErrorKind::NotADirectory => Err(error),
                    removed => removed,
                }
            }
            removed => removed,
        };
        removed.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })?;
    }
    remove_dir(dir, path)
}
