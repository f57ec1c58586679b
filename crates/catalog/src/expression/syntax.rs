//! The text of expressions in SQL: tokens, and a parser by levels of precedence, which are PostgreSQL's.
//!
//! [`Parser`] reads from a longer text too: it stops where the expression ends.

use std::borrow::Cow;
use std::str::FromStr;

use super::error::{ExpressionError, ExpressionErrorKind};
use super::{Binary, Expression, Literal, Name, Unary, types};
use crate::ColumnType;

type Result<T> = std::result::Result<T, ExpressionError>;

/// A token of SQL.
#[derive(Clone, Debug, PartialEq)]
pub enum Token<'t> {
    /// A key word or a name, as it is written.
    Word(&'t str),
    /// A name in quotes.
    Quoted(String),
    /// A number without a sign.
    Number(&'t str),
    /// A text in quotes.
    Text(String),
    /// `$1` and so on.
    Parameter(u16),
    /// An operator or a punctuation mark.
    Symbol(&'t str),
    /// The end of the text.
    End,
}

/// How tightly an operator binds, from the loosest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Least,
    Or,
    And,
    Not,
    Is,
    Comparison,
    In,
    Other,
    Sum,
    Product,
    Negative,
    Cast,
    Whole,
}

impl Level {
    /// The next looser one.
    pub(super) fn below(self) -> Level {
        match self {
            Level::Other => Level::In,
            Level::Sum => Level::Other,
            Level::Product => Level::Sum,
            other => other,
        }
    }
}

/// Words that name no column unless they are in quotes: those that PostgreSQL reserves, and `between`.
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization between binary both case \
                        cast check collate collation column concurrently constraint create cross current_catalog \
                        current_date current_role current_schema current_time current_timestamp current_user default \
                        deferrable desc distinct do else end except false fetch for foreign freeze from full grant \
                        group having ilike in initially inner intersect into is isnull join lateral leading like \
                        limit localtime localtimestamp natural not notnull null offset on only or order outer \
                        overlaps placing primary references returning select session_user similar some symmetric \
                        table tablesample then to trailing true union unique user using variadic verbose when where \
                        window with ";

fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&format!(" {word} "))
}

/// Whether a name needs no quotes.
pub(super) fn is_plain_name(name: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit())
        // Functions may be called so, and columns may not.
        && !is_reserved(name) && !matches!(name, "left" | "right")
}

/// Reads tokens, expressions and types.
#[derive(Clone, Debug)]
pub struct Parser<'t> {
    text: &'t str,
    token: Token<'t>,
    /// Where the token begins, and where what follows it does.
    start: usize,
    next: usize,
    /// Levels of recursion.
    depth: usize,
    /// Levels of the expression that was read last.
    height: usize,
    /// The size of all copies.
    copied: usize,
}

/// The whole text is an expression.
impl FromStr for Expression {
    type Err = ExpressionError;
    fn from_str(text: &str) -> Result<Expression> {
        let mut parser = Parser::new(text)?;
        let expression = parser.expression()?;
        parser.finish()?;
        Ok(expression)
    }
}

impl<'t> Parser<'t> {
    /// A parser at the first token of a text.
    ///
    /// # Errors
    /// There is no token: a text in quotes does not end, or there is a character that no token has.
    pub fn new(text: &'t str) -> Result<Parser<'t>> {
        let mut parser = Parser { text, token: Token::End, start: 0, next: 0, depth: 0, height: 0, copied: 0 };
        parser.advance()?;
        Ok(parser)
    }

    /// The token at hand.
    pub fn token(&self) -> &Token<'t> {
        &self.token
    }

    /// The bytes of the text before the token at hand.
    pub fn position(&self) -> usize {
        self.start
    }

    /// An error at the token at hand.
    #[cold]
    pub fn error(&self, problem: &str) -> ExpressionError {
        let end = self.next.max(self.start);
        let found = match &self.token {
            Token::End => "at the end".to_owned(),
            _ => format!("at `{}`", &self.text[self.start..end]),
        };
        ExpressionError::new(ExpressionErrorKind::Syntax, self.text.trim(), format!("{problem} {found}"))
    }

    /// Goes to the next token.
    ///
    /// # Errors
    /// As [`Parser::new`].
    pub fn advance(&mut self) -> Result<()> {
        let rest = &self.text[self.next..];
        let token = rest.trim_start();
        self.start = self.next + rest.len() - token.len();
        let many = |of: fn(u8) -> bool| token.bytes().take_while(|byte| of(*byte)).count();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii();
        let first = token.bytes().next();
        let second = token.as_bytes().get(1);
        let len;
        self.token = match first {
            None => {
                len = 0;
                Token::End
            }
            Some(b'\'') => {
                let text;
                (text, len) = self.quoted(token, '\'')?;
                Token::Text(text)
            }
            Some(b'"') => {
                let name;
                (name, len) = self.quoted(token, '"')?;
                Token::Quoted(name)
            }
            Some(b'$') => {
                len = 1 + token[1..].bytes().take_while(u8::is_ascii_digit).count();
                Token::Parameter(token[1..len].parse().map_err(|_| self.unknown(token, "a parameter is $1 to $65535"))?)
            }
            Some(b'0'..=b'9') => {
                len = number(token);
                Token::Number(&token[..len])
            }
            Some(b'.') if second.is_some_and(u8::is_ascii_digit) => {
                len = number(token);
                Token::Number(&token[..len])
            }
            Some(byte) if is_name(byte) => {
                len = many(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii());
                Token::Word(&token[..len])
            }
            Some(_) => {
                const SYMBOLS: [&str; 6] = ["::", "<=", ">=", "<>", "!=", "||"];
                len = match SYMBOLS.iter().any(|symbol| token.starts_with(symbol)) {
                    true => 2,
                    false if token.starts_with(|c: char| "()[],.;+-*/%<>=".contains(c)) => 1,
                    false => return Err(self.unknown(token, "no token of SQL begins")),
                };
                Token::Symbol(&token[..len])
            }
        };
        self.next = self.start + len;
        Ok(())
    }

    #[cold]
    fn unknown(&self, token: &str, problem: &str) -> ExpressionError {
        let found: String = token.chars().take(10).collect();
        ExpressionError::new(ExpressionErrorKind::Syntax, self.text.trim(), format!("{problem} at `{found}`"))
    }

    /// What stands between quotes, of which two mean one, and its bytes with them.
    fn quoted(&self, token: &str, quote: char) -> Result<(String, usize)> {
        let (mut content, mut rest) = (String::new(), &token[1..]);
        loop {
            let Some((before, behind)) = rest.split_once(quote) else {
                return Err(self.unknown(token, "the quotes do not end"));
            };
            content.push_str(before);
            match behind.strip_prefix(quote) {
                Some(more) => {
                    content.push(quote);
                    rest = more;
                }
                None => return Ok((content, token.len() - behind.len())),
            }
        }
    }

    /// Whether the token is this word, in letters of any case.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    /// Passes the token if it is this word.
    ///
    /// # Errors
    /// As [`Parser::advance`].
    pub fn take_word(&mut self, word: &str) -> Result<bool> {
        let is_one = self.is_word(word);
        if is_one {
            self.advance()?;
        }
        Ok(is_one)
    }

    /// Passes the token, which must be this word.
    ///
    /// # Errors
    /// It is another.
    pub fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word)? { Ok(()) } else { Err(self.error(&format!("write {}", word.to_uppercase()))) }
    }

    /// Whether the token is this operator or mark.
    pub fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(found) if found == symbol)
    }

    /// Passes the token if it is this operator or mark.
    ///
    /// # Errors
    /// As [`Parser::advance`].
    pub fn take_symbol(&mut self, symbol: &str) -> Result<bool> {
        let is_one = self.is_symbol(symbol);
        if is_one {
            self.advance()?;
        }
        Ok(is_one)
    }

    /// Passes the token, which must be this operator or mark.
    ///
    /// # Errors
    /// It is another.
    pub fn expect_symbol(&mut self, symbol: &str) -> Result<()> {
        if self.take_symbol(symbol)? { Ok(()) } else { Err(self.error(&format!("write `{symbol}`"))) }
    }

    /// A name: a word, in lower case, or what stands in quotes.
    ///
    /// # Errors
    /// There is none.
    pub fn name(&mut self) -> Result<Name> {
        let name = match &self.token {
            Token::Quoted(name) => name.clone(),
            Token::Word(word) => word.to_ascii_lowercase(),
            _ => return Err(self.error("write a name")),
        };
        if matches!(self.token, Token::Word(_)) && is_reserved(&name) {
            return Err(self.error("write a name, or put this one in quotes,"));
        }
        self.advance()?;
        Ok(Cow::Owned(name))
    }

    /// Nothing follows.
    ///
    /// # Errors
    /// Something does.
    pub fn finish(&self) -> Result<()> {
        if self.token == Token::End { Ok(()) } else { Err(self.error("the expression goes on")) }
    }

    /// An expression.
    ///
    /// # Errors
    /// There is none, or it has too many levels.
    pub fn expression(&mut self) -> Result<Expression> {
        self.above(Level::Least)
    }

    /// A list of expressions between parentheses; the first one has been passed.
    ///
    /// # Errors
    /// As [`Parser::expression`].
    pub fn expressions(&mut self) -> Result<Vec<Expression>> {
        let (mut all, mut height) = (Vec::new(), 0);
        if !self.take_symbol(")")? {
            loop {
                all.push(self.expression()?);
                height = height.max(self.height);
                if !self.take_symbol(",")? {
                    break;
                }
            }
            self.expect_symbol(")")?;
        }
        self.height = height;
        Ok(all)
    }

    /// A copy of an expression that stands for several. Copies of copies are exponentially many.
    fn copy(&mut self, of: &Expression) -> Result<Expression> {
        self.copied += of.size();
        if self.copied <= Expression::COPIED_MAX {
            return Ok(of.clone());
        }
        Err(ExpressionError::copies())
    }

    /// One more level than this.
    fn raise(&mut self, height: usize) -> Result<()> {
        self.height = height + 1;
        if self.height.max(self.depth) < Expression::DEPTH_MAX {
            return Ok(());
        }
        let problem = format!("the expression has more than {} levels", Expression::DEPTH_MAX);
        Err(ExpressionError::new(ExpressionErrorKind::TooComplex, "…", problem))
    }

    /// An expression of operators that bind more tightly than this.
    fn above(&mut self, level: Level) -> Result<Expression> {
        self.depth += 1;
        let height = self.height;
        self.raise(0)?;
        self.height = height;
        let expression = self.above_at(level);
        self.depth -= 1;
        expression
    }

    fn above_at(&mut self, level: Level) -> Result<Expression> {
        let mut left = self.operand()?;
        let mut height = self.height;
        // The operator before, beside which none of its level may stand.
        let mut before = None;
        while let Some(operator) = self.operator()? {
            let found = operator.level();
            if found <= level || before == Some(found) {
                break;
            }
            self.take_operator(&operator)?;
            before = matches!(found, Level::Comparison | Level::In).then_some(found);
            left = self.behind(left, operator, &mut height)?;
            self.raise(height)?;
            height = self.height;
        }
        self.height = height;
        Ok(left)
    }

    /// The operator at hand.
    fn operator(&self) -> Result<Option<Operator>> {
        Ok(Some(match self.token {
            Token::Symbol(symbol) => match symbol {
                "+" => Operator::Binary(Binary::Add),
                "-" => Operator::Binary(Binary::Subtract),
                "*" => Operator::Binary(Binary::Multiply),
                "/" => Operator::Binary(Binary::Divide),
                "%" => Operator::Binary(Binary::Modulo),
                "||" => Operator::Binary(Binary::Concatenate),
                "=" => Operator::Binary(Binary::Equal),
                "<>" | "!=" => Operator::Binary(Binary::NotEqual),
                "<" => Operator::Binary(Binary::Less),
                "<=" => Operator::Binary(Binary::LessOrEqual),
                ">" => Operator::Binary(Binary::Greater),
                ">=" => Operator::Binary(Binary::GreaterOrEqual),
                "::" => Operator::Cast,
                _ => return Ok(None),
            },
            Token::Word(word) => match &*word.to_ascii_lowercase() {
                "and" => Operator::All,
                "or" => Operator::Any,
                "is" => Operator::Is,
                "in" => Operator::In { negated: false },
                "like" => Operator::Like { negated: false },
                "between" => Operator::Between { negated: false },
                "not" => {
                    let mut ahead = self.clone();
                    ahead.advance()?;
                    match () {
                        () if ahead.is_word("in") => Operator::In { negated: true },
                        () if ahead.is_word("like") => Operator::Like { negated: true },
                        () if ahead.is_word("between") => Operator::Between { negated: true },
                        () => return Ok(None),
                    }
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    fn take_operator(&mut self, operator: &Operator) -> Result<()> {
        let has_two = matches!(
            operator,
            Operator::In { negated: true } | Operator::Like { negated: true } | Operator::Between { negated: true }
        );
        if has_two {
            self.advance()?;
        }
        self.advance()
    }

    /// What an operator makes of its left operand and of what stands behind it. `height` becomes the levels of all
    /// operands.
    fn behind(&mut self, left: Expression, operator: Operator, height: &mut usize) -> Result<Expression> {
        let level = operator.level();
        let mut right = |parser: &mut Self| {
            let right = parser.above(level)?;
            *height = (*height).max(parser.height);
            Ok(right)
        };
        let negated = |is_negated: bool, expression: Expression| match is_negated {
            true => expression.apply(Unary::Not),
            false => expression,
        };
        Ok(match operator {
            Operator::Binary(operator) => left.with(operator, right(self)?),
            Operator::All => {
                let right = right(self)?;
                match left {
                    Expression::All(mut parts) => {
                        parts.push(right);
                        *height = height.saturating_sub(1);
                        Expression::All(parts)
                    }
                    left => Expression::All(vec![left, right]),
                }
            }
            Operator::Any => {
                let right = right(self)?;
                match left {
                    Expression::Any(mut parts) => {
                        parts.push(right);
                        *height = height.saturating_sub(1);
                        Expression::Any(parts)
                    }
                    left => Expression::Any(vec![left, right]),
                }
            }
            Operator::Is => {
                let is_negated = self.take_word("not")?;
                let expression = if self.take_word("distinct")? {
                    self.expect_word("from")?;
                    left.with(Binary::Distinct, right(self)?)
                } else if self.take_word("true")? {
                    left.apply(Unary::IsTrue)
                } else if self.take_word("false")? {
                    left.apply(Unary::IsFalse)
                } else if self.take_word("null")? || self.take_word("unknown")? {
                    left.apply(Unary::IsNull)
                } else {
                    return Err(self.error("write NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM"));
                };
                *height += usize::from(is_negated);
                negated(is_negated, expression)
            }
            Operator::In { negated: is_negated } => {
                self.expect_symbol("(")?;
                let list = self.expressions()?;
                *height = (*height).max(self.height) + usize::from(is_negated);
                if list.is_empty() {
                    return Err(self.error("write the values of IN before what stands"));
                }
                negated(is_negated, Expression::In { of: left.into(), list })
            }
            Operator::Like { negated: is_negated } => {
                let pattern = right(self)?.into();
                let escape = if self.take_word("escape")? { Some(right(self)?.into()) } else { None };
                *height += usize::from(is_negated);
                negated(is_negated, Expression::Like { of: left.into(), pattern, escape })
            }
            Operator::Between { negated: is_negated } => {
                let low = right(self)?;
                self.expect_word("and")?;
                let high = right(self)?;
                *height += 1 + usize::from(is_negated);
                let above = self.copy(&left)?.with(Binary::GreaterOrEqual, low);
                let below = left.with(Binary::LessOrEqual, high);
                negated(is_negated, Expression::All(vec![above, below]))
            }
            Operator::Cast => left.cast(self.column_type()?),
        })
    }

    /// What stands before, between and behind operators.
    fn operand(&mut self) -> Result<Expression> {
        self.height = 0;
        match self.token.clone() {
            Token::Number(text) => {
                self.advance()?;
                Ok(Expression::Literal(Literal::Number(Cow::Owned(text.to_owned()))))
            }
            Token::Text(text) => {
                self.advance()?;
                Ok(Expression::Literal(Literal::Text(Cow::Owned(text))))
            }
            Token::Parameter(number) => {
                self.advance()?;
                Ok(Expression::Parameter(number))
            }
            Token::Symbol("(") => {
                self.advance()?;
                let inner = self.expression()?;
                self.expect_symbol(")")?;
                Ok(inner)
            }
            Token::Symbol("-") => {
                self.advance()?;
                let operand = self.above(Level::Negative)?;
                match operand {
                    // The sign of a constant is a part of it.
                    Expression::Literal(Literal::Number(text)) => {
                        let negative = text.strip_prefix('-').map_or_else(|| format!("-{text}"), str::to_owned);
                        Ok(Expression::Literal(Literal::Number(Cow::Owned(negative))))
                    }
                    operand => {
                        self.raise(self.height)?;
                        Ok(operand.apply(Unary::Negate))
                    }
                }
            }
            Token::Symbol("+") => {
                self.advance()?;
                self.above(Level::Negative)
            }
            Token::Word(word) => self.word(word),
            Token::Quoted(_) => self.named(),
            Token::Symbol(_) | Token::End => Err(self.error("write a value, a column or a function")),
        }
    }

    fn word(&mut self, word: &'t str) -> Result<Expression> {
        let literal = match &*word.to_ascii_lowercase() {
            "null" => Literal::Null,
            "true" => Literal::Bool(true),
            "false" => Literal::Bool(false),
            "not" => {
                self.advance()?;
                let operand = self.above(Level::Not)?;
                self.raise(self.height)?;
                return Ok(operand.apply(Unary::Not));
            }
            "case" => return self.case(),
            "cast" => {
                self.advance()?;
                self.expect_symbol("(")?;
                let of = self.expression()?;
                self.raise(self.height)?;
                self.expect_word("as")?;
                let to = self.column_type()?;
                self.expect_symbol(")")?;
                return Ok(of.cast(to));
            }
            "trim" => return self.trim(),
            word @ ("current_user" | "session_user") => {
                let function = Cow::Owned(word.to_owned());
                self.advance()?;
                if self.take_symbol("(")? {
                    self.expect_symbol(")")?;
                }
                self.raise(0)?;
                return Ok(Expression::Call { function, arguments: Vec::new() });
            }
            _ => {
                // A type and a text.
                let mut ahead = self.clone();
                if let Ok(to) = ahead.column_type()
                    && let Token::Text(text) = ahead.token.clone()
                {
                    ahead.advance()?;
                    *self = ahead;
                    self.raise(0)?;
                    return Ok(Expression::Literal(Literal::Text(Cow::Owned(text))).cast(to));
                }
                return self.named();
            }
        };
        self.advance()?;
        Ok(Expression::Literal(literal))
    }

    /// A column or a function.
    fn named(&mut self) -> Result<Expression> {
        let name = self.name()?;
        if self.take_symbol("(")? {
            let arguments = if name == "substring" { self.substring()? } else { self.expressions()? };
            self.raise(self.height)?;
            return Ok(Expression::Call { function: name, arguments });
        }
        if self.take_symbol(".")? {
            return Ok(Expression::Column { table: Some(name), column: self.name()? });
        }
        Ok(Expression::column(name))
    }

    /// Arguments with commas, or with FROM and FOR.
    fn substring(&mut self) -> Result<Vec<Expression>> {
        let mut all = vec![self.expression()?];
        let mut height = self.height;
        if !self.is_word("from") && !self.is_word("for") {
            if self.take_symbol(",")? {
                all.extend(self.expressions()?);
            } else {
                self.expect_symbol(")")?;
            }
            self.height = height.max(self.height);
            return Ok(all);
        }
        let from = match self.take_word("from")? {
            true => self.expression()?,
            false => Expression::Literal(Literal::Number("1".into())),
        };
        height = height.max(self.height);
        all.push(from);
        if self.take_word("for")? {
            all.push(self.expression()?);
            height = height.max(self.height);
        }
        self.height = height;
        self.expect_symbol(")")?;
        Ok(all)
    }

    /// `TRIM([LEADING | TRAILING | BOTH] [characters] FROM text)`, or with commas.
    fn trim(&mut self) -> Result<Expression> {
        self.advance()?;
        self.expect_symbol("(")?;
        let function = match () {
            () if self.take_word("leading")? => "ltrim",
            () if self.take_word("trailing")? => "rtrim",
            () => {
                self.take_word("both")?;
                "btrim"
            }
        };
        let mut arguments = Vec::new();
        let mut height = 0;
        if !self.is_word("from") {
            arguments.push(self.expression()?);
            height = self.height;
        }
        if self.take_word("from")? {
            // The text comes first.
            arguments.insert(0, self.expression()?);
            self.expect_symbol(")")?;
        } else if self.take_symbol(",")? {
            arguments.extend(self.expressions()?);
        } else {
            self.expect_symbol(")")?;
        }
        self.raise(height.max(self.height))?;
        Ok(Expression::call(function, arguments))
    }

    /// With conditions, or with values that the first operand is compared with.
    fn case(&mut self) -> Result<Expression> {
        self.advance()?;
        let mut height = 0;
        let of = if self.is_word("when") { None } else { Some(self.expression()?) };
        height = height.max(self.height * usize::from(of.is_some()));
        let mut branches = Vec::new();
        while self.take_word("when")? {
            let when = self.expression()?;
            height = height.max(self.height + 1);
            self.expect_word("then")?;
            let then = self.expression()?;
            height = height.max(self.height);
            let when = match &of {
                Some(of) => self.copy(of)?.with(Binary::Equal, when),
                None => when,
            };
            branches.push((when, then));
        }
        if branches.is_empty() {
            return Err(self.error("write WHEN"));
        }
        let otherwise = match self.take_word("else")? {
            true => Some(Box::new(self.expression()?)),
            false => None,
        };
        height = height.max(self.height);
        self.expect_word("end")?;
        self.raise(height)?;
        Ok(Expression::Case { branches, otherwise })
    }

    /// The name of a type, with its parameters.
    ///
    /// # Errors
    /// There is none.
    pub fn column_type(&mut self) -> Result<ColumnType> {
        let Token::Word(word) = self.token else { return Err(self.error("write a type")) };
        let mut unknown = self.error("there is no such type");
        let mut name = word.to_ascii_lowercase();
        self.advance()?;
        match &*name {
            "double" => {
                self.expect_word("precision")?;
                "double precision".clone_into(&mut name);
            }
            "character" => {
                self.expect_word("varying")?;
                "varchar".clone_into(&mut name);
            }
            "timestamp" | "time" if self.is_word("with") || self.is_word("without") => {
                let has_zone = self.take_word("with")?;
                if !has_zone {
                    self.expect_word("without")?;
                }
                self.expect_word("time")?;
                self.expect_word("zone")?;
                if has_zone {
                    name.push_str(" with time zone");
                }
            }
            _ => {}
        }
        let mut numbers = Vec::new();
        if let Token::Symbol("(") = self.token {
            self.advance()?;
            loop {
                let Token::Number(text) = self.token else { return Err(self.error("write a number")) };
                numbers.push(text.parse().map_err(|_| self.error("write a number up to 65535"))?);
                self.advance()?;
                if !self.take_symbol(",")? {
                    break;
                }
            }
            self.expect_symbol(")")?;
            let problem = "there is no type with these numbers; of numeric it is numeric(18, digits after the point),";
            unknown = self.error(problem);
        }
        types::named(&name, &numbers).ok_or(unknown)
    }
}

/// The bytes of a number: digits, a point and an exponent.
fn number(token: &str) -> usize {
    let bytes = token.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = digits(0);
    if bytes.get(len) == Some(&b'.') {
        len += 1 + digits(len + 1);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'-' | b'+')));
        if let Some(b'0'..=b'9') = bytes.get(len + 1 + sign) {
            len += 1 + sign + digits(len + 1 + sign);
        }
    }
    len
}

/// What may stand behind an operand.
enum Operator {
    Binary(Binary),
    All,
    Any,
    Is,
    In { negated: bool },
    Like { negated: bool },
    Between { negated: bool },
    Cast,
}

impl Operator {
    fn level(&self) -> Level {
        match self {
            Operator::Any => Level::Or,
            Operator::All => Level::And,
            Operator::Is => Level::Is,
            Operator::In { .. } | Operator::Like { .. } | Operator::Between { .. } => Level::In,
            Operator::Cast => Level::Cast,
            Operator::Binary(operator) => operator.level(),
        }
    }
}

impl Binary {
    /// Whether it compares its operands: the others are functions of them.
    pub(super) fn is_comparison(self) -> bool {
        matches!(self.level(), Level::Comparison | Level::Is)
    }

    pub(super) fn level(self) -> Level {
        match self {
            Binary::Add | Binary::Subtract => Level::Sum,
            Binary::Multiply | Binary::Divide | Binary::Modulo => Level::Product,
            Binary::Concatenate => Level::Other,
            Binary::Distinct => Level::Is,
            _ => Level::Comparison,
        }
    }
}
