//! Arrays. They are kept as PostgreSQL writes them: `{a,b}`.

use std::borrow::Cow;

use crate::error::{SqlError, SqlState};

/// The text of an array of these elements, of which `None` is NULL.
pub(crate) fn to_text<S: AsRef<str>>(elements: impl Iterator<Item = Option<S>>) -> String {
    let mut text = "{".to_owned();
    for (at, element) in elements.enumerate() {
        if at > 0 {
            text.push(',');
        }
        let Some(element) = element else {
            text.push_str("NULL");
            continue;
        };
        let element = element.as_ref();
        let is_special = |c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_whitespace();
        if element.is_empty() || element.eq_ignore_ascii_case("null") || element.contains(is_special) {
            text.push('"');
            for character in element.chars() {
                if matches!(character, '"' | '\\') {
                    text.push('\\');
                }
                text.push(character);
            }
            text.push('"');
        } else {
            text.push_str(element);
        }
    }
    text.push('}');
    text
}

/// The elements of an array: of `{a,b}`, or of the numbers of a vector, `1 2`.
///
/// # Errors
/// The text is no array of one dimension.
pub(crate) fn elements(text: &str) -> Result<Elements<'_>, SqlError> {
    split(text).ok_or_else(|| {
        let message = format!("malformed array literal: \"{text}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    })
}

/// Elements, of which `None` is NULL.
type Elements<'t> = Vec<Option<Cow<'t, str>>>;

fn split(text: &str) -> Option<Elements<'_>> {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('{') else {
        let is_number = |word: &str| word.parse::<i64>().is_ok();
        return text.split_whitespace().map(|word| is_number(word).then_some(Some(Cow::Borrowed(word)))).collect();
    };
    let inner = inner.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    let mut characters = inner.chars().peekable();
    loop {
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        let (mut element, mut is_quoted) = (String::new(), false);
        if characters.next_if_eq(&'"').is_some() {
            is_quoted = true;
            loop {
                match characters.next()? {
                    '"' => break,
                    '\\' => element.push(characters.next()?),
                    character => element.push(character),
                }
            }
            while characters.next_if(|c| c.is_whitespace()).is_some() {}
        } else {
            while let Some(character) = characters.next_if(|c| *c != ',') {
                match character {
                    '\\' => element.push(characters.next()?),
                    '{' | '}' | '"' => return None,
                    character => element.push(character),
                }
            }
            element.truncate(element.trim_end().len());
            if element.is_empty() {
                return None;
            }
        }
        let is_null = !is_quoted && element.eq_ignore_ascii_case("null");
        elements.push((!is_null).then_some(Cow::Owned(element)));
        match characters.next() {
            None => return Some(elements),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_they_were_written() {
        for all in [
            vec![],
            vec![Some("a"), None, Some("")],
            vec![Some("null"), Some("a b"), Some("x\\\"y"), Some("{1,2}")],
            vec![Some("-7")],
        ] {
            let text = to_text(all.iter().copied());
            let again = split(&text).expect("it is an array");
            assert_eq!(again.iter().map(Option::as_deref).collect::<Vec<_>>(), all, "{text}");
        }
        let shown = |text: &str| split(text).map(|all| to_text(all.iter().map(Option::as_deref)));
        assert_eq!(shown("1 2").as_deref(), Some("{1,2}"));
        assert_eq!(shown(" { 1 , \"b\" } ").as_deref(), Some("{1,b}"));
        for wrong in ["x", "{", "{1", "{,}", "{\"a}", "{a}b", "{{1},{2}}"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }
}
