//! Transaction mixes on the command line: a name, one kind alone, or cards of each kind in a deck.

use crate::registry::{Misuse, Values};

/// Most cards of a kind.
const CARDS_MAX: u32 = 1000;

/// The mix in the option `mix`.
///
/// # Errors
/// When it is none.
pub(crate) fn cards<const N: usize>(
    values: &Values,
    kinds: &[&str; N],
    named: &[(&str, [u32; N])],
) -> Result<[u32; N], Misuse> {
    let text = values.text("mix")?;
    parse(text, kinds, named).map_err(|right| Misuse::new("mix", text, &right))
}

/// Parses a mix: a name in `named`, the name of a kind with dashes, or counts of `kinds` in order.
///
/// # Errors
/// The valid forms.
pub(crate) fn parse<const N: usize>(
    text: &str,
    kinds: &[&str; N],
    named: &[(&str, [u32; N])],
) -> Result<[u32; N], String> {
    if let Some((_, cards)) = named.iter().find(|(name, _)| *name == text) {
        return Ok(*cards);
    }
    if let Some(only) = kinds.iter().position(|kind| kind.replace('_', "-") == text) {
        return Ok(std::array::from_fn(|kind| u32::from(kind == only)));
    }
    let counts = text.split(':').map(|count| count.parse().ok().filter(|&count| count <= CARDS_MAX));
    let counts: Option<Vec<u32>> = counts.collect();
    match counts.map(<[u32; N]>::try_from) {
        Some(Ok(cards)) if cards.iter().any(|&count| count > 0) => Ok(cards),
        _ => {
            let names = named.iter().map(|(name, _)| (*name).to_owned());
            let names: Vec<String> = names.chain(kinds.iter().map(|kind| kind.replace('_', "-"))).collect();
            Err(format!("{} or {N} counts up to {CARDS_MAX} with colons between", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn mixes_are_named_alone_or_counted() {
        let mix = |text: &str| parse(text, &["get_row", "put_row"], &[("half", [1, 1])]);
        assert_eq!(mix("half"), Ok([1, 1]));
        assert_eq!(mix("put-row"), Ok([0, 1]));
        assert_eq!(mix("30:70"), Ok([30, 70]));
        for wrong in ["", "most", "1", "0:0", "1:2:3", "1:x", "1:", "1:1001"] {
            let right = mix(wrong).expect_err("no such mix");
            assert!(right.contains("half, get-row, put-row or 2 counts"), "{right}");
        }
    }
}
