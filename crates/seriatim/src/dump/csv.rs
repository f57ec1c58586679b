//! Lines of CSV, as RFC 4180 and PostgreSQL's `COPY … (FORMAT csv)` have them: NULL is an empty field without quotes,
//! and an empty text has quotes.
//!
//! The crate `csv` does not tell an empty field with quotes from one without, so it cannot read this.

use std::io::{self, BufRead, Write};

use crate::Value;

/// Writes fields as a line. PostgreSQL reads a line `\.` as the end of the data, so it has quotes.
pub(super) fn write(out: &mut dyn Write, fields: impl Iterator<Item = Option<String>>) -> io::Result<()> {
    for (at, field) in fields.enumerate() {
        let separator = if at == 0 { "" } else { "," };
        match field {
            None => write!(out, "{separator}")?,
            Some(text) if text.is_empty() || text == "\\." || text.contains([',', '"', '\r', '\n']) => {
                write!(out, "{separator}\"{}\"", text.replace('"', "\"\""))?;
            }
            Some(text) => write!(out, "{separator}{text}")?,
        }
    }
    writeln!(out)
}

/// The fields of a row. A row whose only column is NULL is an empty line.
pub(super) fn fields(values: &[Value]) -> impl Iterator<Item = Option<String>> {
    values.iter().map(Value::to_text)
}

/// Why a record cannot be read.
#[derive(Debug)]
pub(super) enum NoRecord {
    Input(io::Error),
    Malformed(&'static str),
}

/// Reads records, line by line.
pub(super) struct Records<R> {
    input: R,
    /// Lines read so far.
    pub(super) lines: u64,
    /// Bytes read so far.
    pub(super) bytes: usize,
    buffer: Vec<u8>,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R) -> Records<R> {
        Records { input, lines: 0, bytes: 0, buffer: Vec::new() }
    }

    /// Reads the next record into `fields`; `false` at the end. `None` is an empty field without quotes.
    pub(super) fn next(&mut self, fields: &mut Vec<Option<String>>) -> Result<bool, NoRecord> {
        fields.clear();
        self.buffer.clear();
        if !self.read_line()? {
            return Ok(false);
        }
        let mut at = 0;
        loop {
            let field = match self.buffer.get(at) {
                Some(b'"') => Some(self.quoted(&mut at)?),
                _ => {
                    let rest = &self.buffer[at..];
                    let field = &rest[..rest.iter().position(|byte| b",\r\n".contains(byte)).unwrap_or(rest.len())];
                    if field.contains(&b'"') {
                        return Err(NoRecord::Malformed("a quote is inside a field that does not begin with one"));
                    }
                    at += field.len();
                    (!field.is_empty()).then(|| utf8(field.to_vec())).transpose()?
                }
            };
            fields.push(field);
            match &self.buffer[at..] {
                [b',', ..] => at += 1,
                [] | [b'\n'] | [b'\r', b'\n'] | [b'\r'] => return Ok(true),
                [b'\r', ..] => return Err(NoRecord::Malformed("a carriage return is inside a field without quotes")),
                _ => return Err(NoRecord::Malformed("a field goes on behind its closing quote")),
            }
        }
    }

    /// Reads a field that begins with a quote, perhaps over several lines.
    fn quoted(&mut self, at: &mut usize) -> Result<String, NoRecord> {
        let mut field = Vec::new();
        *at += 1;
        loop {
            let rest = &self.buffer[*at..];
            let Some(quote) = rest.iter().position(|byte| *byte == b'"') else {
                field.extend_from_slice(rest);
                *at = self.buffer.len();
                if !self.read_line()? {
                    return Err(NoRecord::Malformed("the input ends inside a field with quotes"));
                }
                continue;
            };
            field.extend_from_slice(&rest[..quote]);
            *at += quote + 1;
            if self.buffer.get(*at) != Some(&b'"') {
                return utf8(field);
            }
            field.push(b'"');
            *at += 1;
        }
    }

    fn read_line(&mut self) -> Result<bool, NoRecord> {
        let read = self.input.read_until(b'\n', &mut self.buffer).map_err(NoRecord::Input)?;
        self.lines += u64::from(read > 0);
        self.bytes += read;
        Ok(read > 0)
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, NoRecord> {
    String::from_utf8(bytes).map_err(|_| NoRecord::Malformed("a field is not in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &[u8]) -> Result<Vec<Option<String>>, String> {
        let (mut fields, mut records) = (Vec::new(), Records::new(text));
        match records.next(&mut fields) {
            Ok(true) => Ok(fields),
            Ok(false) => Err("the end".to_owned()),
            Err(NoRecord::Malformed(problem)) => Err(problem.to_owned()),
            Err(NoRecord::Input(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn every_record_comes_back_and_null_is_no_empty_text() {
        let texts = ["", "\"", "\"\"", ",", ",,", "\n", "\r\n", "\r", "a,\"b\"", "\\.", "NULL", " ", "ü"];
        let values: Vec<Option<String>> = texts.iter().map(|text| Some((*text).to_owned())).chain([None]).collect();
        for first in &values {
            for second in &values {
                let row = [first.clone(), second.clone(), None].to_vec();
                let mut text = Vec::new();
                write(&mut text, row.iter().cloned()).expect("memory");
                assert_eq!(record(&text).as_ref(), Ok(&row));
                // The last line may lack its end.
                assert_eq!(record(&text[..text.len() - 1]), Ok(row));
            }
        }
    }

    #[test]
    fn what_is_no_csv_is_refused() {
        let cases: [(&[u8], &str); 6] = [
            (b"", "the end"),
            (b"1,\"open\nand on", "the input ends inside a field with quotes"),
            (b"a\"b\n", "a quote is inside a field that does not begin with one"),
            (b"\"a\"b\n", "a field goes on behind its closing quote"),
            (b"\xff\n", "a field is not in UTF-8"),
            (b"a\rb\n", "a carriage return is inside a field without quotes"),
        ];
        for (text, problem) in cases {
            assert_eq!(record(text), Err(problem.to_owned()));
        }
    }
}
