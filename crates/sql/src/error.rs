//! Errors of statements, with the fields that PostgreSQL's have.

use std::fmt;
use std::ops::{Deref, DerefMut};

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::EvaluationError;
use seriatim::{Refusal, SchemaError, TransactError};

/// The class of an error: five characters, as PostgreSQL's appendix A has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! states {
    ($($(#[$about:meta])* $name:ident = $code:literal;)+) => {
        impl SqlState {$(
            $(#[$about])*
            pub const $name: SqlState = SqlState($code);
        )+}
    };
}

states! {
    /// Valid SQL that Seriatim does not have.
    FEATURE_NOT_SUPPORTED = "0A000";
    /// More or fewer values than columns.
    CARDINALITY_VIOLATION = "21000";
    /// A text is too long for its type.
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    /// A number is out of the range of its type.
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    /// A date or time is out of range.
    DATETIME_FIELD_OVERFLOW = "22008";
    /// A division by zero.
    DIVISION_BY_ZERO = "22012";
    /// A parameter of a setting or function has a value that it cannot have.
    INVALID_PARAMETER_VALUE = "22023";
    /// A text is not a value of its type.
    INVALID_TEXT_REPRESENTATION = "22P02";
    /// LIMIT is negative.
    INVALID_ROW_COUNT_IN_LIMIT = "2201W";
    /// OFFSET is negative.
    INVALID_ROW_COUNT_IN_OFFSET = "2201X";
    /// A sequence has given its last number.
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H";
    /// A column may not be NULL.
    NOT_NULL_VIOLATION = "23502";
    /// A row refers to none, or is referred to.
    FOREIGN_KEY_VIOLATION = "23503";
    /// A key exists.
    UNIQUE_VIOLATION = "23505";
    /// A row breaks a CHECK.
    CHECK_VIOLATION = "23514";
    /// BEGIN in a transaction: a warning.
    ACTIVE_SQL_TRANSACTION = "25001";
    /// A write in a transaction that only reads.
    READ_ONLY_SQL_TRANSACTION = "25006";
    /// COMMIT without a transaction: a warning.
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    /// A statement in a transaction that has failed.
    IN_FAILED_SQL_TRANSACTION = "25P02";
    /// Other objects depend on what would be dropped.
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
    /// There is no such savepoint.
    INVALID_SAVEPOINT_SPECIFICATION = "3B001";
    /// A conflict that outlasted the retries: begin again.
    SERIALIZATION_FAILURE = "40001";
    /// Transactions wait for each other.
    DEADLOCK_DETECTED = "40P01";
    /// The result of a commit is not known.
    STATEMENT_COMPLETION_UNKNOWN = "40003";
    /// Something that cannot be granted.
    INVALID_GRANT_OPERATION = "0LP01";
    /// There is no such schema.
    UNDEFINED_SCHEMA = "3F000";
    /// The role may not do that.
    INSUFFICIENT_PRIVILEGE = "42501";
    /// The name has a meaning.
    RESERVED_NAME = "42939";
    /// The text is not SQL.
    SYNTAX_ERROR = "42601";
    /// A column stands neither in GROUP BY nor in an aggregate.
    GROUPING_ERROR = "42803";
    /// Types do not go together.
    DATATYPE_MISMATCH = "42804";
    /// There is no such function or operator for these types.
    UNDEFINED_FUNCTION = "42883";
    /// A name stands for more than one thing.
    AMBIGUOUS_COLUMN = "42702";
    /// There is no such column.
    UNDEFINED_COLUMN = "42703";
    /// There is no such object, as a type or a setting.
    UNDEFINED_OBJECT = "42704";
    /// The type of a parameter cannot be told.
    INDETERMINATE_DATATYPE = "42P18";
    /// There is no such table.
    UNDEFINED_TABLE = "42P01";
    /// There is no such parameter.
    UNDEFINED_PARAMETER = "42P02";
    /// A column is named twice.
    DUPLICATE_COLUMN = "42701";
    /// A text is no name.
    INVALID_NAME = "42602";
    /// A value is given for a column whose values only its sequence gives.
    GENERATED_ALWAYS = "428C9";
    /// There is no such prepared statement.
    INVALID_SQL_STATEMENT_NAME = "26000";
    /// There is no such cursor.
    INVALID_CURSOR_NAME = "34000";
    /// A cursor of this name exists.
    DUPLICATE_CURSOR = "42P03";
    /// A prepared statement of this name exists.
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    /// A table of this name exists.
    DUPLICATE_TABLE = "42P07";
    /// An object of this name exists.
    DUPLICATE_OBJECT = "42710";
    /// A column reference is in a place where there can be none.
    INVALID_COLUMN_REFERENCE = "42P10";
    /// A table definition makes no sense.
    INVALID_TABLE_DEFINITION = "42P16";
    /// An object is of another kind.
    WRONG_OBJECT_TYPE = "42809";
    /// The log has no space.
    DISK_FULL = "53100";
    /// The memory limit is reached.
    OUT_OF_MEMORY = "53200";
    /// All workers are busy.
    TOO_MANY_CONNECTIONS = "53300";
    /// The statement is nested too deeply.
    STATEMENT_TOO_COMPLEX = "54001";
    /// A table has too many columns.
    TOO_MANY_COLUMNS = "54011";
    /// An object is not in a state in which this can be done.
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    /// An object is used by another transaction.
    OBJECT_IN_USE = "55006";
    /// A lock could not be had.
    LOCK_NOT_AVAILABLE = "55P03";
    /// The statement was cancelled.
    QUERY_CANCELED = "57014";
    /// The database is shut down.
    ADMIN_SHUTDOWN = "57P01";
    /// The log could not be written.
    IO_ERROR = "58030";
    /// A fault of Seriatim.
    INTERNAL_ERROR = "XX000";
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why a statement failed. Its parts are those of [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError(Box<Report>);

impl Deref for SqlError {
    type Target = Report;
    fn deref(&self) -> &Report {
        &self.0
    }
}

impl DerefMut for SqlError {
    fn deref_mut(&mut self) -> &mut Report {
        &mut self.0
    }
}

/// The parts of an error or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its class.
    pub state: SqlState,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What would be right.
    pub hint: Option<String>,
    /// The character of the text at which it was found, counted from 1.
    pub position: Option<usize>,
    /// The table, if it is about one.
    pub table: Option<String>,
    /// The column, if it is about one.
    pub column: Option<String>,
    /// The constraint, if it is about one.
    pub constraint: Option<String>,
}

impl SqlError {
    /// An error with this message.
    pub fn new(state: SqlState, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(Report {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            table: None,
            column: None,
            constraint: None,
        }))
    }

    /// A value that no type here has.
    pub fn unsupported_value(what: impl fmt::Display) -> SqlError {
        SqlError::unsupported(what, "")
    }

    /// Valid SQL that Seriatim does not have, and what it has instead.
    pub(crate) fn unsupported(what: impl fmt::Display, instead: &str) -> SqlError {
        let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"));
        if instead.is_empty() { error } else { error.hint(instead) }
    }

    /// The same error with more about it.
    #[must_use]
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> SqlError {
        self.detail = Some(detail.into());
        self
    }

    /// The same error with what would be right.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> SqlError {
        self.hint = Some(hint.into());
        self
    }

    /// The same error, found at this character of the text.
    #[must_use]
    pub(crate) fn at(mut self, position: Option<usize>) -> SqlError {
        self.position = self.position.or(position);
        self
    }

    /// The same error, about this table.
    #[must_use]
    pub(crate) fn table(mut self, table: impl Into<String>) -> SqlError {
        self.table = Some(table.into());
        self
    }

    /// The same error, about this constraint.
    #[must_use]
    pub(crate) fn constraint(mut self, constraint: impl Into<String>) -> SqlError {
        self.0.constraint = Some(constraint.into());
        self
    }

    /// The same error, about this column.
    #[must_use]
    pub(crate) fn column(mut self, column: impl Into<String>) -> SqlError {
        self.column = Some(column.into());
        self
    }
}

/// As psql prints it.
impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL:  {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT:  {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

/// The end of a transaction.
impl From<TransactError> for SqlError {
    fn from(error: TransactError) -> SqlError {
        if let Some(own) = error.user::<SqlError>() {
            return own.clone();
        }
        if let Some(own) = error.user::<EvaluationError>() {
            return own.clone().into();
        }
        let maybe = error.is_maybe_committed();
        let state = match &error {
            TransactError::Duplicate { table, constraint, key } => {
                let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
                let detail = format!("Key {key} already exists.");
                let error = SqlError::new(SqlState::UNIQUE_VIOLATION, message).detail(detail);
                return error.table(table).constraint(&**constraint);
            }
            TransactError::Check { table, constraint, row } => {
                // If the condition has no value, PostgreSQL says only why.
                if let Some(error) = &row.error {
                    return error.clone().into();
                }
                let message = format!("new row for relation \"{table}\" violates check constraint \"{constraint}\"");
                let detail = format!("Failing row contains ({}).", row.values);
                let error = SqlError::new(SqlState::CHECK_VIOLATION, message).detail(detail);
                return error.table(table).constraint(&**constraint);
            }
            TransactError::ForeignKey { constraint, table, referenced, key, is_missing } => {
                let (message, detail) = match is_missing {
                    true => (
                        format!(
                            "insert or update on table \"{table}\" violates foreign key constraint \"{constraint}\""
                        ),
                        format!("Key {key} is not present in table \"{referenced}\"."),
                    ),
                    false => (
                        format!(
                            "update or delete on table \"{referenced}\" violates foreign key constraint \
                             \"{constraint}\" on table \"{table}\""
                        ),
                        format!("Key {key} is still referenced from table \"{table}\"."),
                    ),
                };
                let mut error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).detail(detail);
                error.constraint = Some(constraint.to_string());
                return error.table(if *is_missing { table.to_string() } else { referenced.to_string() });
            }
            TransactError::Conflict { .. } => {
                let message = "could not serialize access due to a conflict with another transaction";
                let error = SqlError::new(SqlState::SERIALIZATION_FAILURE, message).detail(error.to_string());
                return error.hint("The transaction might succeed if retried.");
            }
            TransactError::Deadlock { .. } => SqlState::DEADLOCK_DETECTED,
            TransactError::OutOfMemory { .. } | TransactError::HoldsMemory => SqlState::OUT_OF_MEMORY,
            TransactError::TooLarge { .. } => SqlState::STRING_DATA_RIGHT_TRUNCATION,
            TransactError::TooOld | TransactError::Cancelled => SqlState::QUERY_CANCELED,
            TransactError::WorkersBusy => SqlState::TOO_MANY_CONNECTIONS,
            TransactError::DiskFull { .. } | TransactError::DiskBehind { .. } => SqlState::DISK_FULL,
            TransactError::Closed => SqlState::ADMIN_SHUTDOWN,
            TransactError::LogStopped { .. } => SqlState::IO_ERROR,
            TransactError::TableGone => SqlState::UNDEFINED_TABLE,
            TransactError::Excluded { .. } => SqlState::LOCK_NOT_AVAILABLE,
            TransactError::SequenceExhausted { .. } => SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
            TransactError::SequenceRange { .. } => SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            TransactError::SequenceGone { .. } => SqlState::UNDEFINED_TABLE,
            TransactError::SequenceNotReserved { .. } => SqlState::IO_ERROR,
            TransactError::Unsupported(_)
            | TransactError::NeedsPlan { .. }
            | TransactError::OtherPartition { .. }
            | TransactError::NoPartition { .. } => SqlState::FEATURE_NOT_SUPPORTED,
            _ if maybe => SqlState::STATEMENT_COMPLETION_UNKNOWN,
            _ => SqlState::INTERNAL_ERROR,
        };
        SqlError::new(state, error.to_string())
    }
}

/// A change of tables that was not made.
impl From<SchemaError> for SqlError {
    fn from(error: SchemaError) -> SqlError {
        let state = match &error {
            SchemaError::Exists(name) => return SqlError::exists(name),
            SchemaError::Unknown(name) => return SqlError::no_table(name),
            SchemaError::Invalid(_) | SchemaError::Mismatch { .. } => SqlState::INVALID_TABLE_DEFINITION,
            SchemaError::OutOfMemory { .. } => SqlState::OUT_OF_MEMORY,
            SchemaError::TooMany { .. } => SqlState::TOO_MANY_COLUMNS,
            SchemaError::WorkersBusy => SqlState::TOO_MANY_CONNECTIONS,
            SchemaError::InUse { .. } | SchemaError::SequenceOwned { .. } => SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            SchemaError::Busy => SqlState::LOCK_NOT_AVAILABLE,
            SchemaError::Storage(_) => SqlState::IO_ERROR,
            SchemaError::Refused { table, reason, .. } => return refused(table, reason, error.to_string()),
            SchemaError::Transact(error) => return SqlError::from((**error).clone()),
            _ => SqlState::INTERNAL_ERROR,
        };
        SqlError::new(state, error.to_string())
    }
}

/// What does not allow a change of a table.
fn refused(table: &str, reason: &Refusal, says: String) -> SqlError {
    let (state, constraint) = match reason {
        Refusal::Duplicate { constraint } => (SqlState::UNIQUE_VIOLATION, Some(constraint)),
        Refusal::Check { constraint } => (SqlState::CHECK_VIOLATION, Some(constraint)),
        Refusal::ForeignKey { constraint, .. } => (SqlState::FOREIGN_KEY_VIOLATION, Some(constraint)),
        Refusal::Null { .. } => (SqlState::NOT_NULL_VIOLATION, None),
        Refusal::Value { ty: ColumnType::Text { .. } | ColumnType::LongText, .. } => {
            (SqlState::STRING_DATA_RIGHT_TRUNCATION, None)
        }
        Refusal::Value { .. } => (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, None),
        Refusal::Referenced { constraint, .. } => (SqlState::DEPENDENT_OBJECTS_STILL_EXIST, Some(constraint)),
        Refusal::Deferred => (SqlState::OBJECT_IN_USE, None),
        Refusal::Late | Refusal::Changed => (SqlState::SERIALIZATION_FAILURE, None),
        Refusal::NoRoom => (SqlState::OUT_OF_MEMORY, None),
        _ => (SqlState::INTERNAL_ERROR, None),
    };
    let mut error = SqlError::new(state, says).table(table.to_owned());
    error.constraint = constraint.cloned();
    if let Refusal::Null { column } | Refusal::Value { column, .. } = reason {
        error.column = Some(column.clone());
    }
    error
}

impl SqlError {
    pub(crate) fn no_table(name: &str) -> SqlError {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    }

    pub(crate) fn exists(name: &str) -> SqlError {
        SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_expression_without_a_value_keeps_its_class_through_a_transaction() {
        let error = EvaluationError::of_surroundings("2200H", "nextval: reached maximum value of sequence \"s\" (2)");
        let error = SqlError::from(TransactError::User(Arc::new(error)));
        assert_eq!((error.state.0, &*error.message), ("2200H", "nextval: reached maximum value of sequence \"s\" (2)"));
    }
}
