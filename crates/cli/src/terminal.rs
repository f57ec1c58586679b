//! Wraps lines to the width of the terminal.

use console::Term;

/// The width if standard output is not a terminal, and the most for the help of commands.
pub(crate) const COLUMNS: usize = 100;
/// Narrower terminals break lines themselves.
const COLUMNS_MIN: usize = 40;

pub(crate) fn columns() -> usize {
    Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| usize::from(columns)).max(COLUMNS_MIN)
}

/// Joins `first` and `text`, broken between words into lines of at most `columns` columns. All lines of `text`
/// begin at column `indent`. A longer word has its own line.
pub(crate) fn wrapped(first: &str, indent: usize, text: &str, columns: usize) -> String {
    let mut lines = format!("{first:<indent$}");
    let mut at = first.chars().count().max(indent);
    let mut is_first = true;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if !is_first && at + 1 + width > columns {
            lines += &format!("\n{:indent$}", "");
            (at, is_first) = (indent, true);
        }
        if !is_first {
            lines.push(' ');
            at += 1;
        }
        lines += word;
        at += width;
        is_first = false;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_below_its_first_word() {
        let text = "one two three, ünf";
        assert_eq!(wrapped("name", 6, text, 100), "name  one two three, ünf\n");
        assert_eq!(wrapped("name", 6, text, 13), "name  one two\n      three,\n      ünf\n");
        assert_eq!(wrapped("", 2, "incomprehensibilities", 10), "  incomprehensibilities\n");
        assert_eq!(wrapped("a", 2, "", 10), "a \n");
    }
}
