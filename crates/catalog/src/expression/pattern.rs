//! LIKE.

use super::error::{EvaluationError, EvaluationErrorKind};

/// The escape character of this text; none if it is empty.
pub(super) fn escape(text: &str) -> Result<Option<char>, EvaluationError> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (_, Some(_)) => {
            let problem = "invalid escape string: it must be empty or one character";
            Err(EvaluationError::new(EvaluationErrorKind::InvalidEscape, problem))
        }
        (first, None) => Ok(first),
    }
}

/// Whether the whole text matches: `%` stands for any text, `_` for one character.
pub(super) fn is_like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool, EvaluationError> {
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    // Behind the last `%`: the pattern, and the text that has not been tried there.
    let mut again: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let wanted = pattern.next();
        let is_match = match wanted {
            None => text.as_str().is_empty(),
            Some(character) if Some(character) == escape => {
                let Some(literal) = pattern.next() else {
                    let problem = "LIKE pattern must not end with escape character";
                    return Err(EvaluationError::new(EvaluationErrorKind::InvalidEscape, problem));
                };
                text.next() == Some(literal)
            }
            Some('%') => {
                again = Some((pattern.clone(), text.clone()));
                continue;
            }
            Some('_') => text.next().is_some(),
            Some(literal) => text.next() == Some(literal),
        };
        if is_match {
            if wanted.is_none() {
                return Ok(true);
            }
            continue;
        }
        // The last `%` takes one character more. That of an earlier one would only take away from this.
        let Some((behind, rest)) = &mut again else { return Ok(false) };
        if rest.next().is_none() {
            return Ok(false);
        }
        (pattern, text) = (behind.clone(), rest.clone());
    }
}
