//! Records as the store sees them: key words at the pointer, and the data of the protocol behind them.
//!
//! ```text
//! KeyClass::Word8    +0 u64 key
//! KeyClass::Word16   +0 u64 high half   +8 u64 low half                       compared as one u128
//! KeyClass::Bytes    +0 u64 prefix      +8 u64 address of an out-of-line block  compared by prefix, then by bytes
//!                    out-of-line block: [len: u64][bytes]; prefix: the first 8 bytes, big-endian, zero padded
//! ```
//! Invariant: the key words and the out-of-line value are written before the record is linked and never after (rule 1
//! of the crate). So they are read without synchronization.

use seriatim_catalog::{Key, KeyClass};
use std::cmp::Ordering;
use std::ptr::NonNull;

/// Where a record is. Copied freely: how long it may be followed is the holder's promise (rule 2 of the crate).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RecordPtr(NonNull<u8>);

// SAFETY: a pointer alone does nothing; every use of its target is `unsafe` and names rule 2.
unsafe impl Send for RecordPtr {}
// SAFETY: as above.
unsafe impl Sync for RecordPtr {}

impl RecordPtr {
    /// A record at `address`.
    ///
    /// # Safety
    /// `address` is aligned to 8, below 2^48, and holds the key words of the class of every index the record
    /// is linked in.
    #[inline(always)]
    pub const unsafe fn from_raw(address: NonNull<u8>) -> RecordPtr {
        RecordPtr(address)
    }

    /// The address, for fields behind the key words.
    #[inline(always)]
    pub const fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// The address as a number.
    #[inline(always)]
    pub fn addr(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// The record a node word names; `None` for 0.
    ///
    /// # Safety
    /// `bits` is 0 or came from [`RecordPtr::bits`].
    #[inline(always)]
    pub(crate) unsafe fn from_bits(bits: u64) -> Option<RecordPtr> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(bits as usize)).map(RecordPtr)
    }

    /// The form that nodes store.
    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.addr() as u64
    }

    /// # Safety
    /// The record is allocated and its key words are written (rules 1 and 2).
    #[inline(always)]
    unsafe fn key_word(self, index: usize) -> u64 {
        // SAFETY: the caller's promise; key words are aligned to 8.
        unsafe { self.0.cast::<u64>().add(index).read() }
    }
}

/// Bytes that the key words of a class take at the start of a record.
pub const fn key_bytes(class: KeyClass) -> usize {
    match class {
        KeyClass::Word8 => 8,
        KeyClass::Word16 | KeyClass::Bytes => 16,
    }
}

/// Bytes of the out-of-line block that a key of `len` bytes needs.
pub(crate) const fn out_of_line_block_bytes(len: usize) -> usize {
    8 + len
}

/// Writes `key` into the key words of `record`, and for byte keys into `out_of_line`.
///
/// # Safety
/// No other thread can reach `record`. It has room for the key words. For a byte key, `out_of_line` is a block
/// aligned to 8 of [`out_of_line_bytes`]`(key)` bytes that lives as long as the record. For word keys it is ignored.
///
/// # Panics
/// If the key is a byte key and `out_of_line` is `None`.
pub unsafe fn write_key(record: RecordPtr, key: Key<'_>, out_of_line: Option<NonNull<u8>>) {
    let words = record.0.cast::<u64>();
    match key {
        // SAFETY: the caller's promise.
        Key::Word8(key) => unsafe { words.write(key) },
        Key::Word16(key) => {
            // SAFETY: the caller's promise.
            unsafe {
                words.write((key >> 64) as u64);
                words.add(1).write(key as u64);
            }
        }
        Key::Bytes(bytes) => {
            let out_of_line = out_of_line.expect("a byte key has an out-of-line block");
            // SAFETY: the caller's promise.
            unsafe {
                out_of_line::write(out_of_line, bytes);
                words.write(prefix(bytes));
                words.add(1).write(out_of_line.as_ptr().expose_provenance() as u64);
            }
        }
    }
}

/// Bytes of the out-of-line block [`write_key`] wants for `key`: 0 if none.
pub fn out_of_line_bytes(key: Key<'_>) -> usize {
    match key {
        Key::Word8(_) | Key::Word16(_) => 0,
        Key::Bytes(bytes) => out_of_line_block_bytes(bytes.len()),
    }
}

/// The key of a record.
///
/// # Safety
/// The record's key words are of `class`, and the record stays allocated for `'t` (rules 1 and 2).
#[inline]
pub unsafe fn read_key<'t>(record: RecordPtr, class: KeyClass) -> Key<'t> {
    // SAFETY: the caller's promise.
    unsafe {
        match class {
            KeyClass::Word8 => Key::Word8(Word8::of(record)),
            KeyClass::Word16 => Key::Word16(Word16::of(record)),
            KeyClass::Bytes => Key::Bytes(Bytes::of(record).bytes),
        }
    }
}

/// Whether the record's key is `key`.
///
/// # Safety
/// The record's key words are of the class of `key`, and the record is allocated (rules 1 and 2).
#[inline(always)]
pub unsafe fn has_key(record: RecordPtr, key: Key<'_>) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match key {
            Key::Word8(_) => Word8::matches(record, Word8::probe(key)),
            Key::Word16(_) => Word16::matches(record, Word16::probe(key)),
            Key::Bytes(bytes) => has_bytes(record, bytes),
        }
    }
}

/// # Safety
/// As [`has_key`].
#[inline(never)]
unsafe fn has_bytes(record: RecordPtr, bytes: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Bytes::matches(record, BytesProbe::new(bytes)) }
}

/// The first 8 bytes, big-endian, zero padded: ordered as the bytes are, up to ties.
#[inline]
pub(crate) fn prefix(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => bytes.iter().enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte) << (56 - 8 * i)),
    }
}

/// Out-of-line blocks: `[len: u64][bytes]`.
pub(crate) mod out_of_line {
    use std::ptr::NonNull;

    /// # Safety
    /// `block` is private, aligned to 8, and has `8 + bytes.len()` bytes.
    pub(crate) unsafe fn write(block: NonNull<u8>, bytes: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            block.cast::<u64>().write(bytes.len() as u64);
            block.add(8).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }

    /// # Safety
    /// `address` names an out-of-line block that was written before it was published and stays allocated for
    /// `'t` (rules 1, 2).
    #[inline]
    pub(crate) unsafe fn read<'t>(address: u64) -> &'t [u8] {
        let block = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(block.add(8), block.cast::<u64>().read() as usize) }
    }
}

/// A key class at compile time: how to compare a key looked for (a *probe*) with a record's key.
pub(crate) trait Kind: Send + Sync + 'static {
    /// The class this is.
    const CLASS: KeyClass;
    /// A key looked for.
    type Probe<'k>: Copy;

    /// The probe for `key`.
    ///
    /// # Panics
    /// If `key` is of another class: a table uses one codec for all of its keys.
    fn probe(key: Key<'_>) -> Self::Probe<'_>;

    /// The key of a record.
    ///
    /// # Safety
    /// The record's key words are of this kind, and the record stays allocated for `'t` (rules 1 and 2).
    unsafe fn of<'t>(record: RecordPtr) -> Self::Probe<'t>;

    /// Compares two keys.
    fn compare(a: Self::Probe<'_>, b: Self::Probe<'_>) -> Ordering;

    /// Whether a record has this key.
    ///
    /// # Safety
    /// As [`Kind::of`], for the duration of the call.
    #[inline(always)]
    unsafe fn matches(record: RecordPtr, probe: Self::Probe<'_>) -> bool {
        // SAFETY: the caller's promise.
        Self::compare(unsafe { Self::of(record) }, probe).is_eq()
    }
}

#[cold]
#[inline(never)]
pub(crate) fn wrong_class(given: KeyClass, wanted: KeyClass) -> ! {
    panic!("an index of key class {wanted:?} was asked for a key of class {given:?}")
}

/// Keys of up to 8 bytes.
#[derive(Debug)]
pub(crate) struct Word8;

impl Kind for Word8 {
    const CLASS: KeyClass = KeyClass::Word8;
    type Probe<'k> = u64;

    #[inline(always)]
    fn probe(key: Key<'_>) -> u64 {
        match key {
            Key::Word8(word) => word,
            _ => wrong_class(key.class(), Self::CLASS),
        }
    }

    #[inline(always)]
    unsafe fn of<'t>(record: RecordPtr) -> Self::Probe<'t> {
        // SAFETY: the caller's promise.
        unsafe { record.key_word(0) }
    }

    #[inline(always)]
    fn compare(a: u64, b: u64) -> Ordering {
        a.cmp(&b)
    }
}

/// Keys of 9 to 16 bytes.
#[derive(Debug)]
pub(crate) struct Word16;

impl Kind for Word16 {
    const CLASS: KeyClass = KeyClass::Word16;
    type Probe<'k> = u128;

    #[inline(always)]
    fn probe(key: Key<'_>) -> u128 {
        match key {
            Key::Word16(word) => word,
            _ => wrong_class(key.class(), Self::CLASS),
        }
    }

    #[inline(always)]
    unsafe fn of<'t>(record: RecordPtr) -> Self::Probe<'t> {
        // SAFETY: the caller's promise.
        unsafe { u128::from(record.key_word(0)) << 64 | u128::from(record.key_word(1)) }
    }

    #[inline(always)]
    fn compare(a: u128, b: u128) -> Ordering {
        a.cmp(&b)
    }
}

/// Keys that are byte strings.
#[derive(Debug)]
pub(crate) struct Bytes;

/// A byte string with its prefix at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesProbe<'k> {
    /// As [`prefix`] computes it from `bytes`.
    pub(crate) prefix: u64,
    /// The whole key.
    pub(crate) bytes: &'k [u8],
}

impl<'k> BytesProbe<'k> {
    /// The probe for `bytes`.
    #[inline(always)]
    pub(crate) fn new(bytes: &'k [u8]) -> BytesProbe<'k> {
        BytesProbe { prefix: prefix(bytes), bytes }
    }
}

impl Kind for Bytes {
    const CLASS: KeyClass = KeyClass::Bytes;
    type Probe<'k> = BytesProbe<'k>;

    #[inline(always)]
    fn probe(key: Key<'_>) -> BytesProbe<'_> {
        match key {
            Key::Bytes(bytes) => BytesProbe::new(bytes),
            _ => wrong_class(key.class(), Self::CLASS),
        }
    }

    #[inline(always)]
    unsafe fn of<'t>(record: RecordPtr) -> Self::Probe<'t> {
        // SAFETY: the caller's promise.
        unsafe { BytesProbe { prefix: record.key_word(0), bytes: out_of_line::read(record.key_word(1)) } }
    }

    #[inline(always)]
    fn compare(a: BytesProbe<'_>, b: BytesProbe<'_>) -> Ordering {
        // A shorter key may share its zero-padded prefix with a longer one: equal prefixes decide nothing.
        a.prefix.cmp(&b.prefix).then_with(|| a.bytes.cmp(b.bytes))
    }

    #[inline(always)]
    unsafe fn matches(record: RecordPtr, probe: BytesProbe<'_>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { record.key_word(0) == probe.prefix && out_of_line::read(record.key_word(1)) == probe.bytes }
    }
}
