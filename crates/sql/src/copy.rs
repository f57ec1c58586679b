//! COPY: rows from a stream of bytes, and rows as one, in PostgreSQL's formats `text`, `csv` and `binary`.

mod binary;

use binary::Place;
use seriatim::catalog::expression::Datum;
use seriatim::catalog::{ColumnType, TableDef};
use sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Expr, Ident, Query, SelectItem, SetExpr,
    Statement, TableWithJoins,
};

use crate::error::{SqlError, SqlState};
use crate::form;
use crate::names::name;
use crate::select::{Column, Row};
use crate::types::SqlType;

/// Whether rows are lines, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Csv,
    Binary,
}

/// How rows are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    kind: Kind,
    delimiter: u8,
    /// The text of NULL.
    null: String,
    has_header: bool,
    quote: u8,
    /// The byte before a quote inside of quotes.
    escape: u8,
}

/// A COPY as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Copying {
    pub(crate) what: What,
    pub(crate) format: Format,
}

/// What is copied.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Into these columns of a table, or all.
    Into { table: String, columns: Vec<String> },
    /// The rows of a query.
    Of(Box<Query>),
}

/// The COPY that a statement is; none if it is another.
///
/// # Errors
/// It has what there is not.
pub(crate) fn bind(statement: &Statement) -> Option<Result<Copying, SqlError>> {
    let Statement::Copy { source, to, target, options, legacy_options, payload: None } = statement else {
        return None;
    };
    Some(of(source, *to, target, options, legacy_options))
}

fn of(
    source: &CopySource,
    to: bool,
    target: &CopyTarget,
    options: &[CopyOption],
    legacy: &[CopyLegacyOption],
) -> Result<Copying, SqlError> {
    match (target, to) {
        (CopyTarget::Stdin, false) | (CopyTarget::Stdout, true) => {}
        _ => {
            let instead = "COPY reads STDIN and writes STDOUT; psql's \\copy has files.";
            return Err(SqlError::unsupported("COPY of a file or program of the server", instead));
        }
    }
    let format = format(options, legacy)?;
    let what = match (source, to) {
        (CopySource::Table { table_name, columns }, false) => {
            let columns = columns.iter().map(name).collect::<Result<_, _>>()?;
            What::Into { table: crate::names::object(table_name)?, columns }
        }
        (CopySource::Table { table_name, columns }, true) => What::Of(Box::new(all_of(table_name.clone(), columns))),
        (CopySource::Query(query), _) => What::Of(query.clone()),
    };
    Ok(Copying { what, format })
}

/// The query of the columns of a table, or of all.
fn all_of(table: sqlparser::ast::ObjectName, columns: &[Ident]) -> Query {
    let mut select = form::select();
    select.from = vec![TableWithJoins { relation: form::table(table, None, None), joins: Vec::new() }];
    select.projection = match columns {
        [] => vec![SelectItem::Wildcard(Default::default())],
        columns => columns.iter().map(|column| SelectItem::UnnamedExpr(Expr::Identifier(column.clone()))).collect(),
    };
    Query { body: Box::new(SetExpr::Select(Box::new(select))), ..form::query() }
}

fn format(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Format, SqlError> {
    let has = |wanted: fn(&CopyLegacyOption) -> bool| legacy.iter().any(wanted);
    let kind = match options.iter().find_map(|option| match option {
        CopyOption::Format(format) => Some(format.value.to_lowercase()),
        _ => None,
    }) {
        Some(format) if format == "csv" => Kind::Csv,
        Some(format) if format == "text" => Kind::Text,
        Some(format) if format == "binary" => Kind::Binary,
        Some(format) => {
            let message = format!("COPY format \"{format}\" not recognized");
            let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
            return Err(error.hint("Formats are text, csv and binary."));
        }
        None if has(|option| matches!(option, CopyLegacyOption::Csv(_))) => Kind::Csv,
        None if has(|option| matches!(option, CopyLegacyOption::Binary)) => Kind::Binary,
        None => Kind::Text,
    };
    let is_csv = kind == Kind::Csv;
    let mut format = Format::of(kind);
    let unsupported = |option: &dyn std::fmt::Display| {
        let instead = "Options are FORMAT, DELIMITER, NULL, HEADER, QUOTE, ESCAPE, ENCODING and FREEZE.";
        Err(SqlError::unsupported(format!("the option {option} of COPY"), instead))
    };
    let mut escape = None;
    for option in options {
        match option {
            CopyOption::Format(_) | CopyOption::Freeze(_) => {}
            CopyOption::Delimiter(character) => format.delimiter = byte(*character, "delimiter")?,
            CopyOption::Null(text) => format.null = text.clone(),
            CopyOption::Header(has) => format.has_header = *has,
            CopyOption::Quote(character) => format.quote = byte(*character, "quote")?,
            CopyOption::Escape(character) => escape = Some(byte(*character, "escape")?),
            CopyOption::Encoding(encoding) if encoding.to_lowercase().replace('-', "") == "utf8" => {}
            other => return unsupported(other),
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => {}
            CopyLegacyOption::Delimiter(character) => format.delimiter = byte(*character, "delimiter")?,
            CopyLegacyOption::Null(text) => format.null = text.clone(),
            CopyLegacyOption::Csv(of_csv) => {
                for option in of_csv {
                    match option {
                        CopyLegacyCsvOption::Header => format.has_header = true,
                        CopyLegacyCsvOption::Quote(character) => format.quote = byte(*character, "quote")?,
                        CopyLegacyCsvOption::Escape(character) => escape = Some(byte(*character, "escape")?),
                        other => return unsupported(other),
                    }
                }
            }
            other => return unsupported(other),
        }
    }
    format.escape = escape.unwrap_or(format.quote);
    if kind == Kind::Binary && format != Format::of(kind) {
        let message = "cannot specify DELIMITER, NULL, HEADER, QUOTE or ESCAPE in BINARY mode";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let wrong = |message: &str| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    if format.null.contains(['\n', '\r']) || b"\n\r\\".contains(&format.delimiter) {
        return wrong("COPY delimiter and null representation cannot use newline or carriage return");
    }
    if format.null.as_bytes().contains(&format.delimiter) || is_csv && format.delimiter == format.quote {
        return wrong("COPY delimiter must not appear in the NULL specification, and must differ from the quote");
    }
    Ok(format)
}

fn byte(character: char, what: &str) -> Result<u8, SqlError> {
    let message = format!("COPY {what} must be a single one-byte character");
    u8::try_from(character)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}

/// The fields of a record; `None` is NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fields {
    Text(Vec<Option<String>>),
    Binary(Vec<Option<Vec<u8>>>),
}

impl Fields {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Fields::Text(fields) => fields.len(),
            Fields::Binary(fields) => fields.len(),
        }
    }

    /// The value of a field, for a column of this type, stored as that.
    ///
    /// # Errors
    /// It is no value of the type.
    pub(crate) fn value(&self, at: usize, ty: SqlType, stored: ColumnType) -> Result<Datum<'static>, SqlError> {
        match self {
            Fields::Text(fields) => match &fields[at] {
                None => Ok(Datum::Null),
                Some(text) => Ok(Datum::of_text(text, stored)?),
            },
            Fields::Binary(fields) => match &fields[at] {
                None => Ok(Datum::Null),
                Some(bytes) => crate::binary::read(bytes, crate::binary::Format::Binary, Some(ty), stored),
            },
        }
    }
}

/// Most bytes of a record.
const RECORD_BYTES_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 30 };

/// Cuts a stream into records.
#[derive(Debug)]
pub(crate) struct Decoder {
    format: Format,
    /// What has arrived and belongs to no record yet.
    buffer: Vec<u8>,
    /// How much of it has been looked at, and whether that ends inside of quotes.
    looked: usize,
    is_quoted: bool,
    lines: usize,
    is_ended: bool,
    /// Where a binary stream is, and how many fields its rows have.
    place: Place,
    width: usize,
}

impl Decoder {
    pub(crate) fn new(format: Format, width: usize) -> Decoder {
        let (buffer, place) = (Vec::new(), Place::Header);
        Decoder { format, buffer, looked: 0, is_quoted: false, lines: 0, is_ended: false, place, width }
    }

    /// The records that are complete with these bytes; with the last ones also one without an end.
    ///
    /// # Errors
    /// A record is not of the format; it says its line.
    pub(crate) fn records(&mut self, bytes: &[u8], is_last: bool) -> Result<Vec<Fields>, SqlError> {
        self.buffer.extend_from_slice(bytes);
        let records = match self.format.kind {
            Kind::Binary => self.rows(is_last)?,
            Kind::Text | Kind::Csv => self.lines(is_last)?,
        };
        match self.buffer.len() <= RECORD_BYTES_MAX {
            true => Ok(records),
            false => Err(self.malformed("a record is too long")),
        }
    }

    /// Takes the complete rows of a binary stream off the buffer.
    fn rows(&mut self, is_last: bool) -> Result<Vec<Fields>, SqlError> {
        let rows = self.place.rows(&mut self.buffer, self.width, is_last);
        let rows = rows.map_err(|error| error.detail(format!("After {} rows of the data.", self.lines)))?;
        self.lines += rows.len();
        Ok(rows)
    }

    /// Takes the complete lines off the buffer.
    fn lines(&mut self, is_last: bool) -> Result<Vec<Fields>, SqlError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut records, mut start) = (Vec::new(), 0);
        let mut at = self.looked;
        while at < buffer.len() {
            match buffer[at] {
                // Inside of quotes, an escape stands before a quote or means itself.
                byte if self.is_quoted && byte == self.format.escape && self.format.escape != self.format.quote => {
                    at += 1
                }
                byte if self.format.kind == Kind::Csv && byte == self.format.quote => self.is_quoted = !self.is_quoted,
                b'\\' if self.format.kind == Kind::Text => at += 1,
                b'\n' if !self.is_quoted => {
                    self.record(&buffer[start..at], &mut records)?;
                    start = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        if is_last {
            if self.is_quoted {
                return Err(self.malformed("unterminated CSV quoted field"));
            }
            if start < buffer.len() {
                self.record(&buffer[start..], &mut records)?;
            }
            return Ok(records);
        }
        // An escape at the end hides a byte that has not arrived.
        self.looked = at.min(buffer.len()) - start;
        if at > buffer.len() {
            self.looked -= 1;
        }
        // A record may arrive in many pieces: what is there of it stays where it is.
        buffer.drain(..start);
        self.buffer = buffer;
        Ok(records)
    }

    fn malformed(&self, what: &str) -> SqlError {
        SqlError::new(SqlState("22P04"), what).detail(format!("Line {} of the data.", self.lines + 1))
    }

    fn record(&mut self, line: &[u8], records: &mut Vec<Fields>) -> Result<(), SqlError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_header = self.format.has_header && self.lines == 0;
        // A line that says so ends the data.
        self.is_ended |= line == b"\\.";
        if !self.is_ended && !is_header {
            let fields = if self.format.kind == Kind::Csv { self.csv(line)? } else { self.text(line)? };
            records.push(Fields::Text(fields));
        }
        self.lines += 1;
        Ok(())
    }

    fn utf8(&self, bytes: Vec<u8>) -> Result<String, SqlError> {
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| SqlError::new(SqlState("22021"), "invalid byte sequence for encoding \"UTF8\""))
    }

    /// Refuses more fields than any table has columns: each takes more memory than its bytes in the line.
    fn check_count(&self, fields: &[Option<String>]) -> Result<(), SqlError> {
        match fields.len() <= TableDef::COLUMNS_MAX {
            true => Ok(()),
            false => Err(self.malformed("extra data after last expected column")),
        }
    }

    fn text(&self, line: &[u8]) -> Result<Vec<Option<String>>, SqlError> {
        let (mut fields, mut field, mut start, mut at) = (Vec::new(), Vec::new(), 0, 0);
        let end_of = |field: &mut Vec<u8>, raw: &[u8]| match raw == self.format.null.as_bytes() {
            true => {
                field.clear();
                Ok(None)
            }
            false => self.utf8(std::mem::take(field)).map(Some),
        };
        while at < line.len() {
            match line[at] {
                byte if byte == self.format.delimiter => {
                    fields.push(end_of(&mut field, &line[start..at])?);
                    self.check_count(&fields)?;
                    start = at + 1;
                }
                b'\\' if at + 1 < line.len() => {
                    at += 1;
                    let digits = |radix: u32, most: usize, from: usize| {
                        let digits = line[from..].iter().take(most).take_while(|byte| (**byte as char).is_digit(radix));
                        (
                            digits.clone().count(),
                            digits.fold(0_u32, |sum, byte| sum * radix + (*byte as char).to_digit(radix).unwrap_or(0)),
                        )
                    };
                    let (taken, value) = match line[at] {
                        b'b' => (1, 8),
                        b'f' => (1, 12),
                        b'n' => (1, 10),
                        b'r' => (1, 13),
                        b't' => (1, 9),
                        b'v' => (1, 11),
                        b'0'..=b'7' => digits(8, 3, at),
                        b'x' if line.get(at + 1).is_some_and(u8::is_ascii_hexdigit) => {
                            let (taken, value) = digits(16, 2, at + 1);
                            (taken + 1, value)
                        }
                        other => (1, u32::from(other)),
                    };
                    field.push(value as u8);
                    at += taken - 1;
                }
                byte => field.push(byte),
            }
            at += 1;
        }
        fields.push(end_of(&mut field, &line[start..])?);
        Ok(fields)
    }

    fn csv(&self, line: &[u8]) -> Result<Vec<Option<String>>, SqlError> {
        let Format { quote, escape, delimiter, .. } = self.format;
        let (mut fields, mut field, mut was_quoted, mut is_quoted, mut at) = (Vec::new(), Vec::new(), false, false, 0);
        let end_of = |field: &mut Vec<u8>, was_quoted: bool| match !was_quoted && field == self.format.null.as_bytes() {
            true => {
                field.clear();
                Ok(None)
            }
            false => self.utf8(std::mem::take(field)).map(Some),
        };
        while at < line.len() {
            let next = line.get(at + 1).copied();
            match line[at] {
                byte if is_quoted && byte == escape && next.is_some_and(|next| next == quote || next == escape) => {
                    field.extend(next);
                    at += 1;
                }
                byte if byte == quote => (is_quoted, was_quoted) = (!is_quoted, true),
                byte if byte == delimiter && !is_quoted => {
                    fields.push(end_of(&mut field, was_quoted)?);
                    self.check_count(&fields)?;
                    was_quoted = false;
                }
                byte => field.push(byte),
            }
            at += 1;
        }
        fields.push(end_of(&mut field, was_quoted)?);
        Ok(fields)
    }
}

impl Format {
    /// The format of this kind, without options.
    fn of(kind: Kind) -> Format {
        let (delimiter, null) = if kind == Kind::Csv { (b',', "") } else { (b'\t', "\\N") };
        Format { kind, delimiter, null: null.to_owned(), has_header: false, quote: b'"', escape: b'"' }
    }

    /// Whether values have their binary formats.
    pub(crate) fn is_binary(&self) -> bool {
        self.kind == Kind::Binary
    }

    /// The messages that have these rows. Clients rely on it that a binary header stands before the first row.
    pub(crate) fn lines(&self, rows: &[Row], columns: &[Column]) -> Vec<Vec<u8>> {
        if self.is_binary() {
            let mut lines: Vec<_> = rows.iter().map(|row| binary::row(row, columns)).chain([binary::end()]).collect();
            lines[0].splice(..0, binary::header());
            return lines;
        }
        let header = self.has_header.then(|| self.line(columns.iter().map(|column| Some(column.name.as_str().into()))));
        header.into_iter().chain(rows.iter().map(|row| self.row(row, columns))).collect()
    }

    /// The line of a row.
    fn row(&self, row: &Row, columns: &[Column]) -> Vec<u8> {
        self.line(row.iter().zip(columns).map(|(value, column): (&Datum<'_>, _)| column.text(value)))
    }

    fn line<'f>(&self, fields: impl Iterator<Item = Option<std::borrow::Cow<'f, str>>>) -> Vec<u8> {
        let mut line = Vec::new();
        for (at, field) in fields.enumerate() {
            if at > 0 {
                line.push(self.delimiter);
            }
            match field {
                None => line.extend_from_slice(self.null.as_bytes()),
                Some(text) if self.kind == Kind::Csv => self.csv_field(&text, &mut line),
                Some(text) => self.text_field(&text, &mut line),
            }
        }
        line.push(b'\n');
        line
    }

    fn text_field(&self, text: &str, line: &mut Vec<u8>) {
        for byte in text.bytes() {
            let escaped = match byte {
                8 => b'b',
                9 => b't',
                10 => b'n',
                11 => b'v',
                12 => b'f',
                13 => b'r',
                b'\\' => b'\\',
                byte if byte == self.delimiter => byte,
                byte => {
                    line.push(byte);
                    continue;
                }
            };
            line.extend([b'\\', escaped]);
        }
    }

    fn csv_field(&self, text: &str, line: &mut Vec<u8>) {
        let special = |byte: u8| byte == self.delimiter || byte == self.quote || byte == b'\n' || byte == b'\r';
        if !(text == self.null || text == "\\." || text.bytes().any(special)) {
            line.extend_from_slice(text.as_bytes());
            return;
        }
        line.push(self.quote);
        for byte in text.bytes() {
            if byte == self.quote || byte == self.escape {
                line.push(self.escape);
            }
            line.push(byte);
        }
        line.push(self.quote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Command, parse};

    fn format_of(options: &str) -> Result<Format, SqlError> {
        let text = format!("copy t from stdin {options}");
        let commands = parse(&text)?;
        let Command::Statement(statement) = &commands[0] else { panic!("{text}") };
        bind(statement).expect("it is a COPY").map(|copying| copying.format)
    }

    fn read(format: &Format, bytes: &[u8], step: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let mut decoder = Decoder::new(format.clone(), 0);
        let mut records = Vec::new();
        for part in bytes.chunks(step) {
            records.extend(decoder.records(part, false)?);
        }
        records.extend(decoder.records(&[], true)?);
        let fields = |record| match record {
            Fields::Text(fields) => fields,
            Fields::Binary(_) => unreachable!("rows are lines"),
        };
        Ok(records.into_iter().map(fields).collect())
    }

    #[test]
    fn lines_are_read_as_they_were_written_in_whatever_pieces_they_arrive() {
        let texts =
            ["", "a", "\\N", "\\", "\\.", "\t", "a\nb", "\r", "\"", "a\"b", ",", ";", "'", "ä", "\u{8}\u{b}\u{c}"];
        let options = [
            "",
            "with (freeze on)",
            "with (format csv)",
            "(format csv, delimiter ';', null 'a', quote '''', escape '\\')",
            "with delimiter as ';' null as 'x'",
            "csv header",
        ];
        for options in options {
            let format = format_of(options).unwrap_or_else(|error| panic!("{options}: {error}"));
            let (mut bytes, mut wanted) = (Vec::new(), Vec::new());
            if format.has_header {
                bytes.extend(format.line([Some("name".into())].into_iter()));
            }
            for first in texts {
                for second in texts {
                    let row = [Some(first), None, Some(second)];
                    bytes.extend(format.line(row.iter().map(|field| field.map(Into::into))));
                    wanted.push(row.map(|field| field.map(str::to_owned)).to_vec());
                }
            }
            for step in [1, 2, 7, bytes.len()] {
                let read = read(&format, &bytes, step).unwrap_or_else(|error| panic!("{options}: {error}"));
                assert!(read == wanted, "{options} in steps of {step}: {read:?}");
            }
        }
    }

    #[test]
    fn escapes_ends_and_blank_lines_are_those_of_postgresql() {
        let text = format_of("").expect("sound");
        let some = |text: &str| Some(text.to_owned());
        let lines = b"\\x41\\102\\q\t\\\\N\r\n\n\\.\nafter\n";
        assert_eq!(read(&text, lines, 3), Ok(vec![vec![some("ABq"), some("\\N")], vec![some("")]]));
        let csv = format_of("csv").expect("sound");
        assert_eq!(read(&csv, b"a\"b\"c,\"\",\n", 2), Ok(vec![vec![some("abc"), some(""), None]]));
        assert_eq!(read(&csv, b"\"open\n", 2).expect_err("it has no end").state, SqlState("22P04"));
        assert_eq!(read(&text, b"\xff\n", 1).expect_err("it is not UTF-8").state, SqlState("22021"));
    }

    #[test]
    fn options_that_there_are_not_are_refused() {
        let failed = |options: &str| format_of(options).expect_err("it makes no sense").state;
        assert_eq!(failed("(format parquet)"), SqlState::INVALID_PARAMETER_VALUE);
        assert_eq!(failed("(format binary, delimiter ';')"), SqlState::SYNTAX_ERROR);
        assert_eq!(failed("binary null as 'x'"), SqlState::SYNTAX_ERROR);
        assert_eq!(failed("(format binary, header)"), SqlState::SYNTAX_ERROR);
        assert_eq!(failed("(delimiter 'ab')"), SqlState::SYNTAX_ERROR);
        assert_eq!(failed("(format csv, delimiter '\"')"), SqlState::INVALID_PARAMETER_VALUE);
    }

    #[test]
    fn records_and_their_fields_have_a_most() {
        for options in ["", "csv"] {
            let mut decoder = Decoder::new(format_of(options).expect("sound"), 0);
            let fields = ",\t".repeat(TableDef::COLUMNS_MAX + 1) + "\n";
            assert_eq!(decoder.records(fields.as_bytes(), false).expect_err("no table has so many").state.0, "22P04");
            let mut decoder = Decoder::new(format_of(options).expect("sound"), 0);
            let mut piece = || decoder.records(&[b'x'; 1000], false);
            let pieces = (0..100).take_while(|_| piece().is_ok()).count();
            assert!((3..6).contains(&pieces), "{pieces} pieces of one record");
        }
    }
}
