//! COPY in PostgreSQL's format `binary`: a header, rows whose fields have lengths, and an end.
//!
//! A length announces nothing that is reserved: a row is taken when all of it has arrived.

use bytes::{BufMut, BytesMut};

use super::Fields;
use crate::binary::{Format, write};
use crate::error::{SqlError, SqlState};
use crate::select::{Column, Row};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Bytes of a header: the signature, flags, and the length of what extends the header.
const HEADER_BYTES: usize = SIGNATURE.len() + 8;
/// The flags that a reader must know. Of them, one says that rows have OIDs.
const FLAGS_CRITICAL: u32 = 0xffff_0000;
/// The most bytes of a field, as PostgreSQL has it.
const FIELD_BYTES_MAX: usize = 0x3fff_ffff;

/// The place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Header,
    /// So many bytes extend the header.
    Extension(usize),
    Rows,
    End,
}

fn malformed(what: impl Into<String>) -> SqlError {
    SqlError::new(SqlState("22P04"), what)
}

fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Place {
    /// Takes the complete rows of so many fields off the front of `buffer`.
    ///
    /// # Errors
    /// The bytes are not of the format, or end inside of a row with the last ones.
    pub(super) fn rows(&mut self, buffer: &mut Vec<u8>, width: usize, is_last: bool) -> Result<Vec<Fields>, SqlError> {
        let (mut rows, mut at) = (Vec::new(), 0);
        while let Some((next, bytes)) = self.step(&buffer[at..], width, &mut rows)? {
            *self = next;
            at += bytes;
        }
        buffer.drain(..at);
        match self {
            _ if !is_last => {}
            Place::Header => return Err(malformed("COPY file signature not recognized")),
            Place::Extension(_) => return Err(malformed("invalid COPY file header (wrong length)")),
            Place::Rows if !buffer.is_empty() => return Err(malformed("unexpected EOF in COPY data")),
            Place::Rows | Place::End => {}
        }
        Ok(rows)
    }

    /// The next place, and how many bytes lead there; none if they have not arrived.
    fn step(self, bytes: &[u8], width: usize, rows: &mut Vec<Fields>) -> Result<Option<(Place, usize)>, SqlError> {
        match self {
            Place::Header => {
                let begin = &bytes[..bytes.len().min(SIGNATURE.len())];
                if begin != &SIGNATURE[..begin.len()] {
                    return Err(malformed("COPY file signature not recognized"));
                }
                let (Some(flags), Some(extension)) = (int32(bytes, SIGNATURE.len()), int32(bytes, SIGNATURE.len() + 4))
                else {
                    return Ok(None);
                };
                if flags as u32 & FLAGS_CRITICAL != 0 {
                    return Err(malformed("unrecognized critical flags in COPY file header"));
                }
                let extension = usize::try_from(extension);
                let extension = extension.map_err(|_| malformed("invalid COPY file header (wrong length)"))?;
                Ok(Some((Place::Extension(extension), HEADER_BYTES)))
            }
            Place::Extension(0) => Ok(Some((Place::Rows, 0))),
            Place::Extension(_) if bytes.is_empty() => Ok(None),
            Place::Extension(left) => {
                let skipped = left.min(bytes.len());
                Ok(Some((Place::Extension(left - skipped), skipped)))
            }
            Place::Rows => {
                let Some(count) = bytes.first_chunk::<2>() else { return Ok(None) };
                let count = i16::from_be_bytes(*count);
                if count == -1 {
                    return Ok(Some((Place::End, 2)));
                }
                if usize::try_from(count) != Ok(width) {
                    return Err(malformed(format!("row field count is {count}, expected {width}")));
                }
                let Some((fields, taken)) = fields(bytes, width)? else { return Ok(None) };
                rows.push(Fields::Binary(fields));
                Ok(Some((Place::Rows, taken)))
            }
            Place::End if bytes.is_empty() => Ok(None),
            Place::End => Err(malformed("received copy data after EOF marker")),
        }
    }
}

/// The fields of a row, and how many bytes it has; none if they have not all arrived.
type Cut = Option<(Vec<Option<Vec<u8>>>, usize)>;

fn fields(bytes: &[u8], width: usize) -> Result<Cut, SqlError> {
    let mut ends = Vec::with_capacity(width);
    let mut at = 2;
    for _ in 0..width {
        let Some(length) = int32(bytes, at) else { return Ok(None) };
        at += 4;
        match usize::try_from(length) {
            Ok(length) if length <= FIELD_BYTES_MAX => {
                if bytes.len() - at < length {
                    return Ok(None);
                }
                ends.push(Some((at, at + length)));
                at += length;
            }
            _ if length == -1 => ends.push(None),
            _ => return Err(malformed("invalid field size")),
        }
    }
    let fields = ends.into_iter().map(|place| place.map(|(start, end)| bytes[start..end].to_vec()));
    Ok(Some((fields.collect(), at)))
}

/// What stands before the rows.
pub(super) fn header() -> Vec<u8> {
    [SIGNATURE, &[0; 8]].concat()
}

/// A row.
pub(super) fn row(row: &Row, columns: &[Column]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(row.len() as i16);
    for (value, column) in row.iter().zip(columns) {
        write(value, column, Format::Binary, &mut bytes);
    }
    bytes.into()
}

/// What stands behind them.
pub(super) fn end() -> Vec<u8> {
    vec![0xff; 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a stream that arrives in pieces of so many bytes.
    fn read(stream: &[u8], step: usize, width: usize) -> Result<Vec<Vec<Option<Vec<u8>>>>, String> {
        let (mut place, mut buffer, mut rows) = (Place::Header, Vec::new(), Vec::new());
        let pieces = stream.chunks(step).map(|piece| (piece, false)).chain([(&[][..], true)]);
        for (piece, is_last) in pieces {
            buffer.extend_from_slice(piece);
            rows.extend(place.rows(&mut buffer, width, is_last).map_err(|error| error.message.clone())?);
        }
        let fields = |row| match row {
            Fields::Binary(fields) => fields,
            Fields::Text(_) => unreachable!("the format is binary"),
        };
        Ok(rows.into_iter().map(fields).collect())
    }

    #[test]
    fn rows_are_read_in_whatever_pieces_they_arrive() {
        let field = |bytes: &[u8]| [&(bytes.len() as i32).to_be_bytes()[..], bytes].concat();
        let rows = [[0, 2].to_vec(), field(b"abc"), vec![0xff; 4], [0, 2].to_vec(), field(b""), field(&[0xff; 9])];
        let wanted = vec![vec![Some(b"abc".to_vec()), None], vec![Some(Vec::new()), Some(vec![0xff; 9])]];
        for extension in [&[][..], &[7; 5]] {
            let header = [SIGNATURE, &[0, 0, 0, 9], &(extension.len() as i32).to_be_bytes(), extension].concat();
            let stream = [header, rows.concat(), end()].concat();
            for step in 1..=stream.len() {
                assert_eq!(read(&stream, step, 2), Ok(wanted.clone()), "in steps of {step}");
            }
            // The end can be missing, but not a part of a row.
            let without = stream.len() - 2;
            assert_eq!(read(&stream[..without], 3, 2), Ok(wanted.clone()));
            for end in 0..without {
                let read = read(&stream[..end], 4, 2);
                assert!(read.is_err() || read.is_ok_and(|read| wanted.starts_with(&read)), "{end} bytes");
            }
        }
    }

    #[test]
    fn what_is_not_of_the_format_is_refused() {
        let stream = |rest: &[u8]| [&header(), rest].concat();
        let failed = |stream: &[u8]| read(stream, 1000, 1).expect_err("it is wrong");
        assert_eq!(failed(b""), "COPY file signature not recognized");
        assert_eq!(failed(b"1\tann\n"), "COPY file signature not recognized");
        assert_eq!(failed(b"PGCOPY\n\r\n\0"), "COPY file signature not recognized");
        let with = |flags: [u8; 4], length: [u8; 4]| [SIGNATURE, &flags, &length].concat();
        assert_eq!(failed(&with([0, 1, 0, 0], [0; 4])), "unrecognized critical flags in COPY file header");
        assert_eq!(failed(&with([0; 4], [0xff; 4])), "invalid COPY file header (wrong length)");
        assert_eq!(failed(&with([0; 4], [0, 0, 0, 1])), "invalid COPY file header (wrong length)");
        assert_eq!(failed(&stream(&[0, 2, 0xff, 0xff, 0xff, 0xff])), "row field count is 2, expected 1");
        assert_eq!(failed(&stream(&[0xff, 0xfe])), "row field count is -2, expected 1");
        assert_eq!(failed(&stream(&[0, 1, 0xff, 0xff, 0xff, 0xfe])), "invalid field size");
        assert_eq!(failed(&stream(&[0, 1, 0x7f, 0xff, 0xff, 0xff])), "invalid field size");
        assert_eq!(failed(&stream(&[0, 1, 0, 0, 0, 9, 1])), "unexpected EOF in COPY data");
        assert_eq!(failed(&stream(&[0])), "unexpected EOF in COPY data");
        assert_eq!(failed(&stream(&[0xff, 0xff, 0])), "received copy data after EOF marker");
    }
}
