//! Functions of the catalogue, of arrays and of patterns: what needs more than its arguments, or has any number of
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use seriatim::catalog::expression::{Datum, ExpressionError, ScopeFunction};
use seriatim::catalog::{ColumnType, Object, Privileges};

use super::INFORMATION;
use super::schema::{CATALOG_OID, INFORMATION_OID, SCHEMA_OID, quoted};
use super::tables::TYPES;
use crate::error::{SqlError, SqlState};
use crate::names::{CATALOG, SCHEMA};
use crate::rows::Owned;
use crate::run::Env;
use crate::types::SqlType;

/// Numbers of these functions begin here; those of queries are below.
pub(crate) const FUNCTIONS_FROM: usize = 1 << 32;

/// Computes a result.
type Apply = for<'a> fn(&Called<'a>) -> Result<Owned, SqlError>;

/// A function that is called.
struct Called<'a> {
    env: Env<'a>,
    arguments: &'a [Datum<'a>],
}

/// A function: its names, the least number of its arguments, and the types of all that it can have. The last one is
/// that of all further ones if there may be any number.
struct Function {
    names: &'static [&'static str],
    least: usize,
    arguments: &'static [Option<ColumnType>],
    is_variadic: bool,
    result: ColumnType,
    /// Whether it is NULL where an argument is.
    is_strict: bool,
    apply: Apply,
}

const OID: Option<ColumnType> = Some(ColumnType::U32);
const INT: Option<ColumnType> = Some(ColumnType::I32);
const TEXT: Option<ColumnType> = Some(ColumnType::LongText);
const BOOL: Option<ColumnType> = Some(ColumnType::Bool);
const ANY: Option<ColumnType> = None;

const fn strict(
    names: &'static [&'static str],
    least: usize,
    arguments: &'static [Option<ColumnType>],
    result: ColumnType,
    apply: Apply,
) -> Function {
    Function { names, least, arguments, is_variadic: false, result, is_strict: true, apply }
}

/// All functions.
const FUNCTIONS: &[Function] = &[
    strict(&["\0matches"], 2, &[TEXT, TEXT], ColumnType::Bool, |called| called.matches(false)),
    strict(&["\0matches any case"], 2, &[TEXT, TEXT], ColumnType::Bool, |called| called.matches(true)),
    Function {
        names: &["\0array"],
        least: 0,
        arguments: &[TEXT],
        is_variadic: true,
        result: ColumnType::LongText,
        is_strict: false,
        apply: |called| {
            let element = |value: &Datum<'_>| (!value.is_null()).then(|| value.to_text(None).into_owned());
            Ok(text(crate::array::to_text(called.arguments.iter().map(element))))
        },
    },
    strict(&["\0element"], 2, &[TEXT, INT], ColumnType::LongText, |called| {
        let array = called.text(0);
        let first = if array.trim_start().starts_with('{') { 1 } else { 0 };
        let elements = crate::array::elements(&array)?;
        let at = usize::try_from(called.integer(1) - first).unwrap_or(usize::MAX);
        Ok(elements.into_iter().nth(at).flatten().map_or(Datum::Null, text))
    }),
    comparison(&["\0any ="], |called| called.quantified(false, |order| order.is_eq())),
    comparison(&["\0any <>"], |called| called.quantified(false, |order| order.is_ne())),
    comparison(&["\0any <"], |called| called.quantified(false, |order| order.is_lt())),
    comparison(&["\0any <="], |called| called.quantified(false, |order| order.is_le())),
    comparison(&["\0any >"], |called| called.quantified(false, |order| order.is_gt())),
    comparison(&["\0any >="], |called| called.quantified(false, |order| order.is_ge())),
    comparison(&["\0all ="], |called| called.quantified(true, |order| order.is_eq())),
    comparison(&["\0all <>"], |called| called.quantified(true, |order| order.is_ne())),
    comparison(&["\0all <"], |called| called.quantified(true, |order| order.is_lt())),
    comparison(&["\0all <="], |called| called.quantified(true, |order| order.is_le())),
    comparison(&["\0all >"], |called| called.quantified(true, |order| order.is_gt())),
    comparison(&["\0all >="], |called| called.quantified(true, |order| order.is_ge())),
    strict(&["current_setting"], 1, &[TEXT, BOOL], ColumnType::LongText, |called| {
        let own = called.text(0);
        match called.env.run.around().and_then(|around| around.setting(&own)) {
            Some(value) => Ok(text(value)),
            None if matches!(called.arguments.get(1), Some(Datum::Bool(true))) => Ok(Datum::Null),
            None => {
                let message = format!("unrecognized configuration parameter \"{own}\"");
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
            }
        }
    }),
    Function {
        names: &["set_config"],
        least: 3,
        arguments: &[TEXT, TEXT, BOOL],
        is_variadic: false,
        result: ColumnType::LongText,
        is_strict: false,
        apply: |called| {
            if called.arguments[0].is_null() {
                return Err(SqlError::new(SqlState("22004"), "SET requires parameter name"));
            }
            let own = called.text(0);
            let value = if called.arguments[1].is_null() { "default".to_owned() } else { called.text(1) };
            crate::Session::check_setting(&own, &value)?;
            let is_local = matches!(called.arguments[2], Datum::Bool(true));
            if let Some(around) = called.env.run.around() {
                around.change_setting(&own, &value, is_local);
            }
            Ok(text(value))
        },
    },
    strict(&["array_to_string"], 2, &[TEXT, TEXT, TEXT], ColumnType::LongText, |called| {
        let array = called.text(0);
        let elements = crate::array::elements(&array)?;
        let null = called.arguments.get(2).map(|_| called.text(2));
        let null = null.as_deref();
        let shown = elements.iter().filter_map(|one| one.as_deref().or(null));
        let between = called.text(1);
        // A separator or what stands for NULL may be longer than all elements.
        let bytes = shown.clone().fold(0_usize, |sum, one| sum.saturating_add(one.len() + between.len()));
        called.env.run.check_length(bytes)?;
        Ok(text(shown.collect::<Vec<&str>>().join(&between)))
    }),
    strict(&["array_length", "array_upper"], 2, &[TEXT, INT], ColumnType::I32, |called| {
        let (first, length) = called.extent()?;
        Ok(if length == 0 || called.integer(1) != 1 { Datum::Null } else { Datum::Integer(first + length - 1) })
    }),
    strict(&["array_lower"], 2, &[TEXT, INT], ColumnType::I32, |called| {
        let (first, length) = called.extent()?;
        Ok(if length == 0 || called.integer(1) != 1 { Datum::Null } else { Datum::Integer(first) })
    }),
    strict(&["cardinality"], 1, &[TEXT], ColumnType::I32, |called| Ok(Datum::Integer(called.extent()?.1))),
    strict(&["array_position"], 2, &[TEXT, TEXT], ColumnType::I32, |called| {
        let array = called.text(0);
        let elements = crate::array::elements(&array)?;
        let wanted = called.text(1);
        let at = elements.iter().position(|element| element.as_deref() == Some(&*wanted));
        Ok(at.map_or(Datum::Null, |at| Datum::Integer(at as i128 + called.extent().map_or(1, |(first, _)| first))))
    }),
    // Objects by their names, and names of objects.
    strict(&["\0oid of class"], 1, &[ANY], ColumnType::U32, |called| called.relation(true)),
    strict(&["\0oid of type"], 1, &[ANY], ColumnType::U32, |called| called.ty(true)),
    strict(&["\0oid of namespace"], 1, &[ANY], ColumnType::U32, |called| {
        let name = called.text(0);
        match (called.given_oid(), &*name) {
            (Some(oid), _) => Ok(oid),
            (None, CATALOG) => Ok(id(CATALOG_OID)),
            (None, SCHEMA) => Ok(id(SCHEMA_OID)),
            (None, INFORMATION) => Ok(id(INFORMATION_OID)),
            (None, _) => Err(SqlError::new(SqlState("3F000"), format!("schema \"{name}\" does not exist"))),
        }
    }),
    strict(&["\0oid of role"], 1, &[ANY], ColumnType::U32, |called| called.role(0).map(id)),
    strict(&["\0oid of proc", "\0oid of procedure"], 1, &[ANY], ColumnType::U32, |called| called.procedure()),
    strict(&["to_regclass"], 1, &[TEXT], ColumnType::LongText, |called| {
        let oid = called.relation(false)?;
        Ok(if oid.is_null() { Datum::Null } else { text(called.text(0)) })
    }),
    strict(&["to_regtype"], 1, &[TEXT], ColumnType::U32, |called| called.ty(false)),
    strict(&["\0name of class"], 1, &[OID], ColumnType::LongText, |called| {
        let oid = called.oid(0);
        Ok(match called.env.run.schema().relation_name(oid) {
            Some((name, INFORMATION_OID)) => text(format!("{INFORMATION}.{}", quoted(name))),
            Some((name, _)) => text(quoted(name)),
            None => number_or_none(oid),
        })
    }),
    strict(&["\0name of type"], 1, &[OID], ColumnType::LongText, |called| {
        let oid = called.oid(0);
        Ok(type_name(oid, None).map_or_else(|| number_or_none(oid), text))
    }),
    strict(&["\0name of namespace"], 1, &[OID], ColumnType::LongText, |called| {
        Ok(match called.oid(0) {
            CATALOG_OID => text(CATALOG),
            SCHEMA_OID => text(SCHEMA),
            INFORMATION_OID => text(INFORMATION),
            oid => number_or_none(oid),
        })
    }),
    strict(&["\0name of role"], 1, &[OID], ColumnType::LongText, |called| {
        let oid = called.oid(0);
        Ok(called.env.run.schema().role(oid).map_or_else(|| number_or_none(oid), |name| text(quoted(name))))
    }),
    strict(&["\0name of proc", "\0name of procedure"], 1, &[OID], ColumnType::LongText, |called| {
        let name = (called.oid(0) as usize).checked_sub(PROCEDURES_FROM).and_then(|at| names().nth(at));
        Ok(name.map_or_else(|| number_or_none(called.oid(0)), text))
    }),
    Function {
        is_strict: false,
        ..strict(&["format_type"], 2, &[OID, INT], ColumnType::LongText, |called| {
            let modifier = match called.arguments.get(1) {
                Some(Datum::Integer(modifier)) => i32::try_from(*modifier).ok(),
                _ => None,
            };
            match called.arguments.first() {
                Some(Datum::Integer(0)) => Ok(text("-")),
                Some(Datum::Integer(_)) => {
                    Ok(text(type_name(called.oid(0), modifier).unwrap_or_else(|| "???".to_owned())))
                }
                _ => Ok(Datum::Null),
            }
        })
    },
    strict(&["pg_get_expr"], 2, &[TEXT, OID, BOOL], ColumnType::LongText, |called| Ok(text(called.text(0)))),
    strict(&["pg_get_indexdef"], 1, &[OID, INT, BOOL], ColumnType::LongText, |called| {
        let Some((table, index)) = called.env.run.schema().index(called.oid(0)) else { return Ok(Datum::Null) };
        let is_pretty = matches!(called.arguments.get(2), Some(Datum::Bool(true)));
        Ok(match usize::try_from(called.integer(1)).unwrap_or(usize::MAX).checked_sub(1) {
            None => text(index.sql(table, is_pretty)),
            Some(at) => {
                let column = index.parts.get(at).map(|part| &table.definition().columns[part.column.index()].name);
                column.map_or_else(|| text(""), |name| text(quoted(name)))
            }
        })
    }),
    strict(&["pg_get_constraintdef"], 1, &[OID, BOOL], ColumnType::LongText, |called| {
        let schema = called.env.run.schema();
        let Some((table, constraint)) = schema.constraint(called.oid(0)) else { return Ok(Datum::Null) };
        let is_pretty = matches!(called.arguments.get(1), Some(Datum::Bool(true)));
        Ok(text(constraint.sql(schema, table, is_pretty)))
    }),
    strict(&["pg_get_userbyid"], 1, &[OID], ColumnType::LongText, |called| {
        let oid = called.oid(0);
        let name = called.env.run.schema().role(oid);
        Ok(text(name.map_or_else(|| format!("unknown (OID={oid})"), |name| name.to_owned())))
    }),
    strict(&["pg_table_is_visible"], 1, &[OID], ColumnType::Bool, |called| {
        let name = called.env.run.schema().relation_name(called.oid(0));
        Ok(name.map_or(Datum::Null, |(_, schema)| Datum::Bool(schema != INFORMATION_OID)))
    }),
    strict(&["pg_type_is_visible"], 1, &[OID], ColumnType::Bool, |called| {
        Ok(type_name(called.oid(0), None).map_or(Datum::Null, |_| Datum::Bool(true)))
    }),
    strict(&["pg_function_is_visible"], 1, &[OID], ColumnType::Bool, |called| {
        let known = (called.oid(0) as usize).checked_sub(PROCEDURES_FROM).and_then(|at| names().nth(at));
        Ok(known.map_or(Datum::Null, |_| Datum::Bool(true)))
    }),
    strict(&["pg_relation_is_publishable"], 1, &[OID], ColumnType::Bool, |called| {
        let schema = called.env.run.schema();
        Ok(Datum::Bool(schema.tables.iter().any(|table| table.oid == called.oid(0))))
    }),
    strict(&["pg_encoding_to_char"], 1, &[INT], ColumnType::LongText, |called| {
        Ok(text(if called.integer(0) == 6 { "UTF8" } else { "" }))
    }),
    // There are no such descriptions and definitions: the tables that they are of have no rows.
    strict(NOTHING, 1, &[OID, ANY, ANY], ColumnType::LongText, |_| Ok(Datum::Null)),
    Function { is_variadic: true, ..strict(OF_TABLES, 2, &[ANY], ColumnType::Bool, Called::of_relation) },
    Function { is_variadic: true, ..strict(&["has_schema_privilege"], 2, &[ANY], ColumnType::Bool, Called::of_schema) },
    // Of these everybody may use all.
    Function { is_variadic: true, ..strict(OF_OTHERS, 2, &[ANY], ColumnType::Bool, |_| Ok(Datum::Bool(true))) },
    strict(&["pg_has_role"], 2, &[ANY, ANY, TEXT], ColumnType::Bool, |called| {
        let (role, rest) = called.asked(3)?;
        let of = called.role(rest)?;
        let access = &called.env.run.schema().access;
        let is_used = called.text(rest + 1).to_ascii_uppercase().starts_with("USAGE");
        Ok(Datum::Bool(if is_used { access.acts_as(role, of) } else { access.is_member(role, of) }))
    }),
    // How much memory a table takes is not known apart from others.
    strict(SIZES, 1, &[ANY, TEXT], ColumnType::I64, |_| Ok(Datum::Null)),
    strict(&["pg_size_pretty"], 1, &[Some(ColumnType::I64)], ColumnType::LongText, |called| {
        let bytes = called.integer(0);
        let units = [("bytes", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1_i128 << 40)];
        let is_fit = |(_, unit): &&(&str, i128)| bytes.abs() / unit < 10_240;
        let (name, unit) = units.iter().find(is_fit).copied().unwrap_or(units[4]);
        Ok(text(format!("{} {name}", (2 * bytes / unit + bytes.signum()) / 2)))
    }),
    strict(&["quote_ident"], 1, &[TEXT], ColumnType::LongText, |called| Ok(text(quoted(&called.text(0))))),
    strict(&["quote_literal"], 1, &[TEXT], ColumnType::LongText, |called| {
        let escaped = called.text(0).replace('\'', "''");
        Ok(text(match escaped.contains('\\') {
            false => format!("'{escaped}'"),
            true => format!("E'{}'", escaped.replace('\\', "\\\\")),
        }))
    }),
    strict(&["current_schemas"], 1, &[BOOL], ColumnType::LongText, |called| {
        let with_catalogue = matches!(called.arguments.first(), Some(Datum::Bool(true)));
        Ok(text(if with_catalogue { "{pg_catalog,public}" } else { "{public}" }))
    }),
    strict(&["pg_is_in_recovery"], 0, &[], ColumnType::Bool, |_| Ok(Datum::Bool(false))),
    // There are no such locks to hold.
    strict(&["pg_advisory_unlock_all"], 0, &[], ColumnType::LongText, |_| Ok(text(""))),
];

const fn comparison(names: &'static [&'static str], apply: Apply) -> Function {
    strict(names, 2, &[ANY, TEXT], ColumnType::Bool, apply)
}

/// What there is no description or definition of.
const NOTHING: &[&str] = &[
    "obj_description",
    "col_description",
    "shobj_description",
    "pg_get_triggerdef",
    "pg_get_ruledef",
    "pg_get_viewdef",
    "pg_get_partkeydef",
    "pg_get_statisticsobjdef",
    "pg_get_statisticsobjdef_columns",
    "pg_get_function_result",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_functiondef",
    "pg_tablespace_location",
];

/// Whether a role may do something with a table, or a part of it.
const OF_TABLES: &[&str] =
    &["has_table_privilege", "has_column_privilege", "has_any_column_privilege", "has_sequence_privilege"];

/// Whether a role may use something to which nobody needs a right.
const OF_OTHERS: &[&str] = &[
    "has_database_privilege",
    "has_function_privilege",
    "has_type_privilege",
    "has_tablespace_privilege",
    "has_language_privilege",
];

/// How many bytes something has on disk.
const SIZES: &[&str] =
    &["pg_relation_size", "pg_table_size", "pg_total_relation_size", "pg_indexes_size", "pg_database_size"];

/// The number of the first function in `pg_proc`.
pub(super) const PROCEDURES_FROM: usize = 10_000;

/// The names of all functions that can be written.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().flat_map(|function| function.names).copied().filter(|name| !name.starts_with('\0'))
}

fn id(oid: u32) -> Owned {
    Datum::Integer(oid.into())
}

/// What the number of no object is shown as.
fn number_or_none(oid: u32) -> Owned {
    text(if oid == 0 { "-".to_owned() } else { oid.to_string() })
}

/// The name of a type with a modifier, if the modifier is known.
fn type_name(oid: u32, modifier: Option<i32>) -> Option<String> {
    let of_modifier = modifier.filter(|modifier| *modifier >= 4).map(|modifier| modifier - 4);
    Some(match (oid, of_modifier) {
        (1042, None) if modifier.is_some() => "bpchar".to_owned(),
        (1042, None) => "character".to_owned(),
        (1042, Some(most)) => format!("character({most})"),
        (1043, None) => "character varying".to_owned(),
        (1043, Some(most)) => format!("character varying({most})"),
        (1700, Some(digits)) => format!("numeric({},{})", digits >> 16, digits & 0xffff),
        (18, _) => "\"char\"".to_owned(),
        (19, _) => "name".to_owned(),
        _ => match SqlType::of_oid(oid) {
            Some(ty) => ty.to_string(),
            None => match TYPES.iter().find(|(_, _, array, ..)| *array == oid && oid != 0) {
                Some((element, ..)) => format!("{}[]", type_name(*element, modifier)?),
                None => TYPES.iter().find(|(own, ..)| *own == oid)?.1.to_owned(),
            },
        },
    })
}

/// The parts of a name, each as it is stored.
fn parts(of: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = of.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(std::mem::take(&mut part)),
            character if is_quoted => part.push(character),
            character => part.push(character.to_ascii_lowercase()),
        }
    }
    parts.push(part);
    parts
}

pub(super) fn text(of: impl Into<String>) -> Owned {
    Datum::Text(of.into().into())
}
/// The function of this name, for these arguments.
///
/// # Errors
/// None yet: a wrong number of arguments is that of another function, if there is one.
pub(crate) fn function(
    called: &str,
    arguments: &[Option<ColumnType>],
) -> Result<Option<ScopeFunction>, ExpressionError> {
    let is_one = |function: &&Function| {
        let is_many = arguments.len() <= function.arguments.len() || function.is_variadic;
        function.names.contains(&called) && function.least <= arguments.len() && is_many
    };
    let Some((number, function)) = FUNCTIONS.iter().enumerate().find(|(_, function)| is_one(function)) else {
        return Ok(None);
    };
    let last = function.arguments.last().copied().flatten();
    let wanted = (0..arguments.len()).map(|at| function.arguments.get(at).copied().unwrap_or(last));
    let wanted = wanted.collect();
    Ok(Some(ScopeFunction { number: FUNCTIONS_FROM + number, arguments: wanted, result: Some(function.result) }))
}

/// Calls the function of this number.
///
/// # Errors
/// It has no value for the arguments.
pub(crate) fn call(env: Env<'_>, number: usize, arguments: &[Datum<'_>]) -> Result<Owned, SqlError> {
    let Some(function) = FUNCTIONS.get(number) else {
        return Err(SqlError::new(SqlState::INTERNAL_ERROR, "there is no such function"));
    };
    if function.is_strict && arguments.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    (function.apply)(&Called { env, arguments })
}

impl Called<'_> {
    fn text(&self, at: usize) -> String {
        self.arguments.get(at).map_or_else(String::new, |value| value.to_text(None).into_owned())
    }

    fn integer(&self, at: usize) -> i128 {
        match self.arguments.get(at) {
            Some(Datum::Integer(value)) => *value,
            _ => 0,
        }
    }

    /// The role of an argument: its number, or its name.
    fn role(&self, at: usize) -> Result<u32, SqlError> {
        match self.arguments.get(at) {
            Some(Datum::Integer(number)) => Ok(u32::try_from(*number).unwrap_or(0)),
            _ => {
                let name = parts(&self.text(at)).pop().unwrap_or_default();
                let found = self.env.run.schema().access.named(&name).map(|(role, _)| role);
                found.ok_or_else(|| crate::roles::no_role(&name))
            }
        }
    }

    /// The role that is asked for, and where the other arguments begin. With so many arguments, it is the first.
    fn asked(&self, most: usize) -> Result<(u32, usize), SqlError> {
        match self.arguments.len() >= most {
            true => Ok((self.role(0)?, 1)),
            false => Ok((self.env.run.role(), 0)),
        }
    }

    /// Whether a role may do one of the things that the last argument names.
    fn may(&self, role: u32, object: Object) -> Result<Owned, SqlError> {
        let access = &self.env.run.schema().access;
        let mut may = false;
        for wanted in self.text(self.arguments.len().saturating_sub(1)).split(',') {
            let wanted = wanted.trim().to_ascii_uppercase();
            let own = wanted.trim_end_matches(" WITH GRANT OPTION");
            let known = Privileges::NAMES.iter().find(|(_, name, _)| *name == own);
            let Some((privilege, ..)) = known else {
                let message = format!("unrecognized privilege type: \"{wanted}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            };
            let is_grant = own.len() < wanted.len();
            may |= match is_grant {
                true => access.acts_as(role, access.rights(object).owner),
                false => access.may(role, object, *privilege),
            };
        }
        Ok(Datum::Bool(may))
    }

    /// Whether a role may do something with a relation.
    fn of_relation(called: &Called<'_>) -> Result<Owned, SqlError> {
        // A column stands behind its table, so the table is the last argument but one, or but two.
        let (role, at) = match called.arguments.len() {
            2 => (called.env.run.role(), 0),
            _ if called.names_relation(0) => (called.env.run.role(), 0),
            _ => (called.role(0)?, 1),
        };
        let inner = Called { env: called.env, arguments: &called.arguments[at..] };
        let relation = inner.relation(true)?;
        let Datum::Integer(oid) = relation else { return Ok(Datum::Null) };
        let schema = called.env.run.schema();
        let oid = u32::try_from(oid).unwrap_or(0);
        if schema.relation_name(oid).is_none() {
            return Ok(Datum::Null);
        }
        match schema.object(oid) {
            Some(object) => called.may(role, object),
            // Everybody reads the catalogue.
            None => {
                let reads = called.text(called.arguments.len() - 1).to_ascii_uppercase().contains("SELECT");
                Ok(Datum::Bool(reads || schema.access.is_superuser(role)))
            }
        }
    }

    /// Whether an argument is a relation, and no role: then a column follows.
    fn names_relation(&self, at: usize) -> bool {
        let one = Called { env: self.env, arguments: &self.arguments[at..] };
        let is_role =
            self.arguments.len() > 3 || self.role(at).is_ok_and(|role| self.env.run.schema().role(role).is_some());
        !is_role && one.relation(false).is_ok_and(|oid| !oid.is_null())
    }

    /// Whether a role may do something with a schema.
    fn of_schema(called: &Called<'_>) -> Result<Owned, SqlError> {
        let (role, at) = called.asked(3)?;
        let own = match called.arguments.get(at) {
            Some(Datum::Integer(number)) => *number,
            _ => match parts(&called.text(at)).last().map(|part| &**part) {
                Some(SCHEMA) => SCHEMA_OID.into(),
                Some(CATALOG | INFORMATION) => CATALOG_OID.into(),
                name => {
                    let message = format!("schema \"{}\" does not exist", name.unwrap_or_default());
                    return Err(SqlError::new(SqlState("3F000"), message));
                }
            },
        };
        if own == i128::from(SCHEMA_OID) {
            return called.may(role, Object::Schema);
        }
        let uses = called.text(called.arguments.len() - 1).to_ascii_uppercase().contains("USAGE");
        Ok(Datum::Bool(uses || called.env.run.schema().access.is_superuser(role)))
    }

    /// The number of the first element of an array, and how many there are.
    fn extent(&self) -> Result<(i128, i128), SqlError> {
        let array = self.text(0);
        let length = crate::array::elements(&array)?.len();
        Ok((i128::from(array.trim_start().starts_with('{')), length as i128))
    }

    fn oid(&self, at: usize) -> u32 {
        u32::try_from(self.integer(at)).unwrap_or(0)
    }

    /// The number that the argument is, or has.
    fn given_oid(&self) -> Option<Owned> {
        match self.arguments.first() {
            Some(Datum::Integer(number)) => Some(Datum::Integer(*number)),
            Some(Datum::Text(text)) if text == "-" => Some(id(0)),
            Some(Datum::Text(text)) => text.trim().parse::<u32>().ok().map(id),
            _ => None,
        }
    }

    /// The relation of a name.
    fn relation(&self, must_exist: bool) -> Result<Owned, SqlError> {
        if let Some(oid) = self.given_oid() {
            return Ok(oid);
        }
        let written = self.text(0);
        let parts = parts(&written);
        let found = match &*parts {
            [name] => self.env.run.schema().relation(None, name),
            [schema, name] => self.env.run.schema().relation(Some(schema), name),
            _ => None,
        };
        match found {
            Some(oid) => Ok(id(oid)),
            None if must_exist => {
                let message = format!("relation \"{}\" does not exist", parts.join("."));
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
            }
            None => Ok(Datum::Null),
        }
    }

    /// The type of a name.
    fn ty(&self, must_exist: bool) -> Result<Owned, SqlError> {
        if let Some(oid) = self.given_oid() {
            return Ok(oid);
        }
        let written = self.text(0);
        let own = written.trim().trim_start_matches("pg_catalog.").replace('"', "");
        let (element, is_array) = match own.strip_suffix("[]") {
            Some(element) => (element, true),
            None => (&*own, false),
        };
        let known = TYPES.iter().find(|(_, name, ..)| *name == element && element != "char");
        let oid = known.map(|(oid, ..)| *oid).or_else(|| SqlType::parse(element).ok().map(SqlType::oid));
        let array = |oid: u32| TYPES.iter().find(|(own, ..)| *own == oid).map(|(_, _, array, ..)| *array);
        match if is_array { oid.and_then(array) } else { oid } {
            Some(oid) => Ok(id(oid)),
            None if must_exist => {
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{written}\" does not exist")))
            }
            None => Ok(Datum::Null),
        }
    }

    /// The function of a name.
    fn procedure(&self) -> Result<Owned, SqlError> {
        if let Some(oid) = self.given_oid() {
            return Ok(oid);
        }
        let written = self.text(0);
        let own = parts(&written).pop().unwrap_or_default();
        match names().position(|name| name == own) {
            Some(at) => Ok(id((PROCEDURES_FROM + at) as u32)),
            None => {
                let message = format!("function \"{written}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message))
            }
        }
    }

    /// Whether a text matches a regular expression.
    fn matches(&self, ignores_case: bool) -> Result<Owned, SqlError> {
        thread_local! {
            /// The expressions of this thread that were used last.
            static KNOWN: RefCell<BTreeMap<(String, bool), regex::Regex>> = RefCell::default();
        }
        let (subject, pattern) = (self.text(0), self.text(1));
        KNOWN.with_borrow_mut(|known| {
            let key = (pattern, ignores_case);
            if !known.contains_key(&key) {
                let made = regex::RegexBuilder::new(&key.0).case_insensitive(ignores_case).size_limit(1 << 20).build();
                let made = made.map_err(|error| {
                    let message = format!("invalid regular expression: {error}");
                    SqlError::new(SqlState("2201B"), message)
                })?;
                if known.len() >= 64 {
                    known.clear();
                }
                known.insert(key.clone(), made);
            }
            Ok(known.get(&key).map_or(Datum::Null, |regex| Datum::Bool(regex.is_match(&subject))))
        })
    }

    /// A comparison with any or all elements of an array.
    fn quantified(&self, is_all: bool, holds: fn(std::cmp::Ordering) -> bool) -> Result<Owned, SqlError> {
        let array = self.text(1);
        let elements = crate::array::elements(&array)?;
        let Some(value) = self.arguments.first() else { return Ok(Datum::Null) };
        let ty = match value {
            Datum::Bool(_) => ColumnType::Bool,
            Datum::Integer(_) | Datum::Wide(_) => ColumnType::I128,
            Datum::Numeric(_) => ColumnType::Numeric,
            Datum::Single(_) => ColumnType::F32,
            Datum::Float(_) => ColumnType::F64,
            Datum::Uuid(_) => ColumnType::Uuid,
            Datum::Date(_) => ColumnType::Date,
            Datum::Time(_) => ColumnType::Time,
            Datum::DateTime(_) => ColumnType::DateTime,
            Datum::Timestamp(_) => ColumnType::Timestamp,
            Datum::Interval(_) => ColumnType::Interval,
            Datum::Bytes(_) => ColumnType::LongBytes,
            Datum::Null | Datum::Text(_) | Datum::Char(_) | Datum::Enum(_) => ColumnType::LongText,
        };
        let mut is_known = true;
        for element in elements {
            let Some(element) = element else {
                is_known = false;
                continue;
            };
            if holds(value.compare(&Datum::of_text(&element, ty)?)) != is_all {
                return Ok(Datum::Bool(!is_all));
            }
        }
        Ok(if is_known { Datum::Bool(is_all) } else { Datum::Null })
    }
}
