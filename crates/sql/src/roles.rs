//! Statements about roles and their rights: CREATE, ALTER and DROP ROLE, GRANT, REVOKE, and SET ROLE.
//!
//! They have a grammar of their own here, since that of the crate `sqlparser` has other words for them. The meaning is
//! that of PostgreSQL 15. There are no grant options: owners and superusers grant, and those who may create roles grant
//! membership.
//!
//! Invariant: what was written of a password is in a [`Secret`], which nobody is shown, and no error repeats it.

use seriatim::catalog::{Access, Grantee, Object, Privileges, Rights, RoleDef, Secret};
use seriatim::{Database, DynHandle, Sequence};
use seriatim_scram::Verifier;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::error::{SqlError, SqlState};
use crate::names::{Names, SCHEMA};

/// A statement about roles.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Create {
        name: String,
        options: Vec<RoleOption>,
    },
    Alter {
        role: RoleName,
        options: Vec<RoleOption>,
    },
    Rename {
        from: String,
        to: String,
    },
    Drop {
        roles: Vec<RoleName>,
        if_exists: bool,
    },
    /// Rights to objects, given or taken back.
    Rights {
        gives: bool,
        privileges: Option<Privileges>,
        objects: Objects,
        to: Vec<To>,
    },
    /// Membership, given or taken back.
    Membership {
        gives: bool,
        groups: Vec<String>,
        to: Vec<RoleName>,
    },
    Own {
        is_sequence: bool,
        table: String,
        to: RoleName,
    },
    /// Who the session acts as from here on; as at first, without one.
    Become {
        what: Become,
        role: Option<RoleName>,
        is_local: bool,
        is_reset: bool,
    },
}

/// What a session changes of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Become {
    Role,
    Session,
}

/// A role in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoleName {
    Name(String),
    Current,
    Session,
}

#[derive(Clone, Debug)]
pub(crate) enum To {
    Public,
    Role(RoleName),
}

/// To what there are rights.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    Tables(Vec<String>),
    AllTables,
    Sequences(Vec<String>),
    AllSequences,
    Schema,
}

#[derive(Clone, Debug)]
pub(crate) enum RoleOption {
    Superuser(bool),
    Login(bool),
    CreateRole(bool),
    CreateDatabase(bool),
    Inherit(bool),
    ConnectionLimit(Option<u32>),
    Password(Option<Secret>),
    InRoles(Vec<String>),
    Members(Vec<RoleName>),
}

impl Statement {
    /// What a client is told when it is done.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Statement::Create { .. } => "CREATE ROLE",
            Statement::Alter { .. } | Statement::Rename { .. } => "ALTER ROLE",
            Statement::Drop { .. } => "DROP ROLE",
            Statement::Rights { gives: true, .. } => "GRANT",
            Statement::Rights { .. } => "REVOKE",
            Statement::Membership { gives: true, .. } => "GRANT ROLE",
            Statement::Membership { .. } => "REVOKE ROLE",
            Statement::Own { is_sequence: true, .. } => "ALTER SEQUENCE",
            Statement::Own { .. } => "ALTER TABLE",
            Statement::Become { is_reset: true, .. } => "RESET",
            Statement::Become { .. } => "SET",
        }
    }
}

/// Why a statement is none: it has an unexpected word at this place, or something that there is not.
pub(crate) enum Problem {
    At(usize),
    Error(SqlError),
}

type Parsed<T> = Result<T, Problem>;

fn unsupported<T>(what: &str, instead: &str) -> Parsed<T> {
    Err(Problem::Error(SqlError::unsupported(what, instead)))
}

/// The statement of these words; none if it is about something else.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Option<Parsed<Statement>> {
    let mut words = Words { tokens, at: 0 };
    let parsed = if words.any(&["GRANT"]) {
        words.rights(true)
    } else if words.any(&["REVOKE"]) {
        words.rights(false)
    } else if words.is(&["CREATE", "USER", "MAPPING"]) {
        return None;
    } else if words.kind("CREATE") {
        words.create()
    } else if words.kind("ALTER") {
        words.alter()
    } else if words.kind("DROP") {
        words.drop_roles()
    } else if words.is(&["ALTER", "TABLE"]) || words.is(&["ALTER", "SEQUENCE"]) {
        words.own()?
    } else {
        words.become_another()?
    };
    Some(parsed.and_then(|statement| match words.at == tokens.len() {
        true => Ok(statement),
        false => Err(Problem::At(words.at)),
    }))
}

/// The words of a statement, from left to right.
struct Words<'t> {
    tokens: &'t [TokenWithSpan],
    at: usize,
}

impl Words<'_> {
    fn is_word(&self, at: usize, word: &str) -> bool {
        let token = self.tokens.get(at).map(|token| &token.token);
        matches!(token, Some(Token::Word(Word { value, quote_style: None, .. })) if value.eq_ignore_ascii_case(word))
    }

    /// Whether these words come next.
    fn is(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.is_word(self.at + ahead, word))
    }

    /// Takes one of these words, if it comes next.
    fn any(&mut self, words: &[&str]) -> bool {
        let is = words.iter().any(|word| self.is_word(self.at, word));
        self.at += usize::from(is);
        is
    }

    /// Takes these words, if they come next.
    fn all(&mut self, words: &[&str]) -> bool {
        let is = self.is(words);
        self.at += if is { words.len() } else { 0 };
        is
    }

    fn expect(&mut self, word: &str) -> Parsed<()> {
        if self.any(&[word]) { Ok(()) } else { Err(Problem::At(self.at)) }
    }

    /// Takes `verb ROLE`, `verb USER` or `verb GROUP`.
    fn kind(&mut self, verb: &str) -> bool {
        ["ROLE", "USER", "GROUP"].iter().any(|kind| self.is(&[verb, kind])) && {
            self.at += 1;
            true
        }
    }

    fn name(&mut self) -> Parsed<String> {
        let Some(Token::Word(Word { value, quote_style, .. })) = self.tokens.get(self.at).map(|token| &token.token)
        else {
            return Err(Problem::At(self.at));
        };
        let ident = sqlparser::ast::Ident { quote_style: *quote_style, ..sqlparser::ast::Ident::new(value.clone()) };
        let name = crate::names::name(&ident).map_err(Problem::Error)?;
        self.at += 1;
        Ok(name)
    }

    /// The name of a table, with its schema or without.
    fn table(&mut self) -> Parsed<String> {
        let first = self.name()?;
        if !matches!(self.tokens.get(self.at).map(|token| &token.token), Some(Token::Period)) {
            return Ok(first);
        }
        self.at += 1;
        if first != SCHEMA {
            let message = format!("schema \"{first}\" does not exist");
            return Err(Problem::Error(SqlError::new(SqlState::UNDEFINED_SCHEMA, message)));
        }
        self.name()
    }

    fn role(&mut self) -> Parsed<RoleName> {
        if self.any(&["CURRENT_USER", "CURRENT_ROLE"]) {
            return Ok(RoleName::Current);
        }
        if self.any(&["SESSION_USER"]) {
            return Ok(RoleName::Session);
        }
        self.any(&["GROUP"]);
        self.name().map(RoleName::Name)
    }

    fn list<T>(&mut self, one: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut list = vec![one(self)?];
        while matches!(self.tokens.get(self.at).map(|token| &token.token), Some(Token::Comma)) {
            self.at += 1;
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn string(&mut self) -> Parsed<String> {
        let text = match self.tokens.get(self.at).map(|token| &token.token) {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            _ => return Err(Problem::At(self.at)),
        };
        self.at += 1;
        Ok(text)
    }

    fn number(&mut self) -> Parsed<i64> {
        let is_negative = matches!(self.tokens.get(self.at).map(|token| &token.token), Some(Token::Minus));
        self.at += usize::from(is_negative);
        match self.tokens.get(self.at).map(|token| &token.token) {
            Some(Token::Number(digits, _)) => {
                let number: i64 = digits.parse().map_err(|_| Problem::At(self.at))?;
                self.at += 1;
                Ok(if is_negative { -number } else { number })
            }
            _ => Err(Problem::At(self.at)),
        }
    }

    fn create(&mut self) -> Parsed<Statement> {
        let is_user = self.any(&["USER"]);
        self.any(&["ROLE", "GROUP"]);
        let name = self.name()?;
        self.any(&["WITH"]);
        let mut options = vec![RoleOption::Login(is_user)];
        options.extend(self.options(true)?);
        Ok(Statement::Create { name, options })
    }

    fn alter(&mut self) -> Parsed<Statement> {
        self.any(&["ROLE", "USER", "GROUP"]);
        if self.any(&["ALL"]) {
            return unsupported("ALTER ROLE ALL", "Settings are of the server's configuration, or of a session.");
        }
        let role = self.role()?;
        if self.all(&["RENAME", "TO"]) {
            let RoleName::Name(from) = role else { return Err(Problem::At(1)) };
            return Ok(Statement::Rename { from, to: self.name()? });
        }
        for (verb, gives) in [("ADD", true), ("DROP", false)] {
            if self.all(&[verb, "USER"]) {
                let RoleName::Name(group) = role else { return Err(Problem::At(1)) };
                let to = self.list(Self::role)?;
                return Ok(Statement::Membership { gives, groups: vec![group], to });
            }
        }
        if self.is(&["SET"]) || self.is(&["RESET"]) || self.is(&["IN", "DATABASE"]) {
            return unsupported("a setting of a role", "SET changes a setting of the session.");
        }
        self.any(&["WITH"]);
        Ok(Statement::Alter { role, options: self.options(false)? })
    }

    fn options(&mut self, is_new: bool) -> Parsed<Vec<RoleOption>> {
        let mut options = Vec::new();
        while self.at < self.tokens.len() {
            type Flag = fn(bool) -> RoleOption;
            let flags: [(&str, &str, Flag); 5] = [
                ("SUPERUSER", "NOSUPERUSER", RoleOption::Superuser),
                ("LOGIN", "NOLOGIN", RoleOption::Login),
                ("CREATEROLE", "NOCREATEROLE", RoleOption::CreateRole),
                ("CREATEDB", "NOCREATEDB", RoleOption::CreateDatabase),
                ("INHERIT", "NOINHERIT", RoleOption::Inherit),
            ];
            if let Some((yes, _, option)) = flags.iter().find(|(yes, no, _)| self.is(&[yes]) || self.is(&[no])) {
                options.push(option(self.is(&[yes])));
                self.at += 1;
            } else if self.any(&["NOREPLICATION", "NOBYPASSRLS"]) {
                // So it is.
            } else if self.is(&["REPLICATION"]) || self.is(&["BYPASSRLS"]) {
                return unsupported("this option of a role", "There are neither replication nor policies of rows.");
            } else if self.all(&["CONNECTION", "LIMIT"]) {
                options.push(RoleOption::ConnectionLimit(u32::try_from(self.number()?).ok()));
            } else if self.any(&["PASSWORD"]) || self.all(&["ENCRYPTED", "PASSWORD"]) {
                let is_null = self.any(&["NULL"]);
                let password = if is_null { None } else { Some(Secret(self.string()?)) };
                options.push(RoleOption::Password(password));
            } else if self.all(&["VALID", "UNTIL"]) {
                if !self.string()?.eq_ignore_ascii_case("infinity") {
                    return unsupported("a password that expires", "VALID UNTIL 'infinity' is there.");
                }
            } else if is_new && (self.all(&["IN", "ROLE"]) || self.all(&["IN", "GROUP"])) {
                options.push(RoleOption::InRoles(self.list(Self::name)?));
            } else if self.any(&["ROLE", "USER"]) {
                options.push(RoleOption::Members(self.list(Self::role)?));
            } else {
                return Err(Problem::At(self.at));
            }
        }
        Ok(options)
    }

    fn drop_roles(&mut self) -> Parsed<Statement> {
        self.any(&["ROLE", "USER", "GROUP"]);
        let if_exists = self.all(&["IF", "EXISTS"]);
        Ok(Statement::Drop { roles: self.list(Self::role)?, if_exists })
    }

    fn own(&mut self) -> Option<Parsed<Statement>> {
        let is_sequence = self.is_word(self.at + 1, "SEQUENCE");
        self.at += 2;
        self.all(&["IF", "EXISTS"]);
        self.any(&["ONLY"]);
        let table = self.table();
        match self.all(&["OWNER", "TO"]) {
            true => Some(table.and_then(|table| Ok(Statement::Own { is_sequence, table, to: self.role()? }))),
            false => None,
        }
    }

    fn become_another(&mut self) -> Option<Parsed<Statement>> {
        let is_reset = self.any(&["RESET"]);
        if !is_reset && !self.any(&["SET"]) {
            return None;
        }
        let is_local = !is_reset && self.any(&["LOCAL"]);
        if !is_reset && !is_local && self.is(&["SESSION"]) && !self.is(&["SESSION", "AUTHORIZATION"]) {
            self.at += 1;
        }
        let what = if self.any(&["ROLE"]) {
            Become::Role
        } else if self.all(&["SESSION", "AUTHORIZATION"]) {
            Become::Session
        } else {
            return None;
        };
        let role = match is_reset {
            true => Ok(None),
            false => {
                let _ = self.any(&["TO"]) || {
                    let is = matches!(self.tokens.get(self.at).map(|token| &token.token), Some(Token::Eq));
                    self.at += usize::from(is);
                    is
                };
                match self.any(&["DEFAULT"]) || what == Become::Role && self.any(&["NONE"]) {
                    true => Ok(None),
                    false => self.string().or_else(|_| self.name()).map(|name| Some(RoleName::Name(name))),
                }
            }
        };
        Some(role.map(|role| Statement::Become { what, role, is_local, is_reset }))
    }

    /// GRANT and REVOKE, behind the verb.
    fn rights(&mut self, gives: bool) -> Parsed<Statement> {
        let toward = if gives { "TO" } else { "FROM" };
        if self.is(&["GRANT", "OPTION", "FOR"]) || self.is(&["ADMIN", "OPTION", "FOR"]) {
            return unsupported("a grant option", "Owners of tables and superusers grant.");
        }
        // The names of privileges are words that roles may have for names.
        let is_of_objects = {
            let on = (self.at..self.tokens.len()).find(|at| self.is_word(*at, "ON") || self.is_word(*at, toward));
            on.is_some_and(|at| self.is_word(at, "ON"))
        };
        let statement = match is_of_objects {
            true => {
                let privileges = self.privileges()?;
                self.expect("ON")?;
                let objects = self.objects()?;
                self.expect(toward)?;
                let to = self.list(|words| match words.any(&["PUBLIC"]) {
                    true => Ok(To::Public),
                    false => words.role().map(To::Role),
                })?;
                Statement::Rights { gives, privileges, objects, to }
            }
            false => {
                let groups = self.list(Self::name)?;
                self.expect(toward)?;
                Statement::Membership { gives, groups, to: self.list(Self::role)? }
            }
        };
        if self.is(&["WITH"]) {
            return unsupported("a grant option", "Owners of tables and superusers grant.");
        }
        if self.all(&["GRANTED", "BY"]) && self.role()? != RoleName::Current {
            return unsupported("a grant in the name of another role", "SET ROLE makes the session act as it.");
        }
        if !gives {
            // Nothing depends on a grant without grant options.
            self.any(&["CASCADE", "RESTRICT"]);
        }
        Ok(statement)
    }

    fn privileges(&mut self) -> Parsed<Option<Privileges>> {
        if self.any(&["ALL"]) {
            self.any(&["PRIVILEGES"]);
            return Ok(None);
        }
        let list = self.list(|words| {
            let known = Privileges::NAMES.iter().find(|(_, name, _)| words.is(&[name]));
            let Some((privilege, ..)) = known else {
                return match words.name() {
                    Ok(other) => {
                        let message = format!("unrecognized privilege type \"{other}\"");
                        Err(Problem::Error(SqlError::new(SqlState::SYNTAX_ERROR, message)))
                    }
                    Err(problem) => Err(problem),
                };
            };
            words.at += 1;
            match words.tokens.get(words.at).map(|token| &token.token) {
                Some(Token::LParen) => unsupported("a privilege of columns", "Privileges are of whole tables."),
                _ => Ok(*privilege),
            }
        })?;
        Ok(Some(list.into_iter().fold(Privileges::NONE, |all, one| all | one)))
    }

    fn objects(&mut self) -> Parsed<Objects> {
        if self.all(&["ALL", "TABLES", "IN", "SCHEMA"]) {
            self.schemas()?;
            return Ok(Objects::AllTables);
        }
        if self.any(&["SCHEMA"]) {
            self.schemas()?;
            return Ok(Objects::Schema);
        }
        if self.all(&["ALL", "SEQUENCES", "IN", "SCHEMA"]) {
            self.schemas()?;
            return Ok(Objects::AllSequences);
        }
        if self.any(&["SEQUENCE"]) {
            return self.list(Self::table).map(Objects::Sequences);
        }
        let is_other = ["DATABASE", "FUNCTION", "TYPE", "DOMAIN", "LANGUAGE", "TABLESPACE", "ALL"];
        if let Some(other) = is_other.iter().find(|other| self.is(&[other])) {
            return unsupported(
                &format!("privileges of {other}"),
                "There are privileges of tables, sequences and the schema.",
            );
        }
        self.any(&["TABLE"]);
        self.list(Self::table).map(Objects::Tables)
    }

    fn schemas(&mut self) -> Parsed<()> {
        match self.list(Self::name)?.into_iter().find(|schema| schema != SCHEMA) {
            None => Ok(()),
            Some(other) => {
                let message = format!("schema \"{other}\" does not exist");
                Err(Problem::Error(SqlError::new(SqlState::UNDEFINED_SCHEMA, message)))
            }
        }
    }
}

/// Who runs a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    /// The role that the session has.
    pub(crate) session: u32,
    /// The role as which it acts now.
    pub(crate) current: u32,
}

pub(crate) fn no_role(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

pub(crate) fn denied(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied {what}"))
}

pub(crate) fn must(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must {what}"))
}

impl RoleName {
    /// The id of the role.
    pub(crate) fn find(&self, access: &Access, actor: Actor) -> Result<u32, SqlError> {
        match self {
            RoleName::Name(name) => access.named(name).map(|(id, _)| id).ok_or_else(|| no_role(name)),
            RoleName::Current => Ok(actor.current),
            RoleName::Session => Ok(actor.session),
        }
    }
}

fn name_of(access: &Access, id: u32) -> String {
    access.role(id).map_or_else(|| id.to_string(), |role| role.name.clone())
}

/// Refuses names that have a meaning.
fn check_name(name: &str) -> Result<(), SqlError> {
    if ["public", "none"].contains(&name) || name.starts_with("pg_") {
        let error = SqlError::new(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved"));
        return Err(error.hint("Names of roles are not \"public\" or \"none\", and do not begin with \"pg_\"."));
    }
    Ok(())
}

/// The passwords of a statement as they are stored. That takes long, so it is done before others wait.
pub(crate) fn with_verifiers(mut statement: Statement) -> Result<(Statement, Vec<SqlError>), SqlError> {
    let mut notices = Vec::new();
    if let Statement::Create { options, .. } | Statement::Alter { options, .. } = &mut statement {
        for option in options {
            let RoleOption::Password(given) = option else { continue };
            *given = match given.take() {
                Some(Secret(text)) if text.is_empty() => {
                    let message = "empty string is not a valid password, clearing password";
                    notices.push(SqlError::new(SqlState("00000"), message));
                    None
                }
                Some(Secret(text)) => Some(Secret(stored(&text)?)),
                None => None,
            };
        }
    }
    Ok((statement, notices))
}

/// What is stored of a password, which may be given in that form.
fn stored(text: &str) -> Result<String, SqlError> {
    if let Ok(verifier) = text.parse::<Verifier>() {
        return Ok(verifier.to_string());
    }
    let digits = text.strip_prefix("md5").filter(|digits| digits.len() == 32);
    if digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Err(SqlError::unsupported("a password hashed with MD5", "SET password_encryption = 'scram-sha-256'."));
    }
    Ok(Verifier::new(text).to_string())
}

/// Acts on a statement. [`Statement::Become`] is of sessions. Returns notices.
///
/// # Errors
/// It makes no sense, or the role may not do it.
pub(crate) fn apply(
    statement: &Statement,
    access: &mut Access,
    actor: Actor,
    names: Names<'_>,
) -> Result<Vec<SqlError>, SqlError> {
    let is_super = access.is_superuser(actor.current);
    let may_create_roles = is_super || access.role(actor.current).is_some_and(|role| role.create_role);
    let mut notices = Vec::new();
    match statement {
        Statement::Become { .. } => {}
        Statement::Create { name, options } => {
            check_name(name)?;
            if !may_create_roles {
                return Err(denied("to create role"));
            }
            if access.named(name).is_some() {
                let message = format!("role \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            let id = access.add(RoleDef::new(name.clone()));
            change(access, id, options, is_super, actor)?;
        }
        Statement::Alter { role, options } => {
            let id = role.find(access, actor)?;
            let is_only_password = options.iter().all(|option| matches!(option, RoleOption::Password(_)));
            if access.is_superuser(id) && !is_super {
                return Err(must("be superuser to alter superuser roles or change superuser attribute"));
            }
            let is_own_password = is_only_password && id == actor.current;
            if !(may_create_roles || is_own_password) {
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied"));
            }
            change(access, id, options, is_super, actor)?;
        }
        Statement::Rename { from, to } => {
            let id = RoleName::Name(from.clone()).find(access, actor)?;
            check_name(to)?;
            if access.is_superuser(id) && !is_super {
                return Err(must("be superuser to rename superusers"));
            }
            if !may_create_roles {
                return Err(denied("to rename role"));
            }
            if id == actor.session || id == actor.current {
                let message = "session user cannot be renamed";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            if access.named(to).is_some() {
                let message = format!("role \"{to}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            let mut role = access.role(id).cloned().ok_or_else(|| no_role(from))?;
            role.name.clone_from(to);
            access.put(id, role);
        }
        Statement::Drop { roles, if_exists } => {
            if !may_create_roles {
                return Err(denied("to drop role"));
            }
            for role in roles {
                match role.find(access, actor) {
                    Ok(id) => drop_role(access, id, is_super, actor, names)?,
                    Err(missing) if *if_exists => {
                        notices.push(SqlError::new(SqlState("00000"), format!("{}, skipping", missing.message)));
                    }
                    Err(missing) => return Err(missing),
                }
            }
        }
        Statement::Membership { gives, groups, to } => {
            for group in groups {
                let of = RoleName::Name(group.clone()).find(access, actor)?;
                if access.is_superuser(of) && !is_super {
                    return Err(must("be superuser to alter superusers"));
                }
                if !may_create_roles {
                    return Err(must(format!("have admin option on role \"{group}\"")));
                }
                for role in to {
                    let id = role.find(access, actor)?;
                    set_membership(access, id, of, *gives, &mut notices)?;
                }
            }
        }
        Statement::Own { table, to, .. } => {
            let to = to.find(access, actor)?;
            let object = match names.sequence(table) {
                Some(sequence) => names.database.object_of_sequence(&sequence),
                None => names.database.object_of(&names.table(table)?),
            };
            let mut rights = access.rights(object);
            check_owner(access, actor.current, object, table)?;
            if !access.is_member(actor.current, to) {
                return Err(must(format!("be member of role \"{}\"", name_of(access, to))));
            }
            if !is_super && !access.may(to, Object::Schema, Privileges::CREATE) {
                return Err(denied(format!("for schema {SCHEMA}")));
            }
            rights.owner = to;
            access.set_rights(object, rights);
        }
        Statement::Rights { gives, privileges, objects, to } => {
            let to = to.iter().map(|to| match to {
                To::Public => Ok(Grantee::Public),
                To::Role(role) => role.find(access, actor).map(Grantee::Role),
            });
            let to = to.collect::<Result<Vec<_>, _>>()?;
            for (object, name) in objects_of(objects, names)? {
                set_rights(access, object, &name, (*gives, *privileges), &to, actor)?;
            }
        }
    }
    Ok(notices)
}

fn change(access: &mut Access, id: u32, options: &[RoleOption], is_super: bool, actor: Actor) -> Result<(), SqlError> {
    let mut role = access.role(id).cloned().ok_or_else(|| no_role(&id.to_string()))?;
    let mut members = Vec::new();
    for option in options {
        match option {
            RoleOption::Superuser(is) => {
                if *is != role.superuser && !is_super {
                    return Err(must("be superuser to create superusers"));
                }
                if id == Access::FIRST && !is {
                    let message = format!("role \"{}\" is always a superuser", role.name);
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                role.superuser = *is;
            }
            RoleOption::Login(is) => role.login = *is,
            RoleOption::CreateRole(is) => role.create_role = *is,
            RoleOption::CreateDatabase(is) => role.create_database = *is,
            RoleOption::Inherit(is) => role.no_inherit = !is,
            RoleOption::ConnectionLimit(most) => role.connections_max = *most,
            RoleOption::Password(password) => {
                role.password.clone_from(password);
                if role.password.is_some() && access.secret().is_none() {
                    access.set_secret(Secret(seriatim_scram::secret()));
                }
            }
            RoleOption::InRoles(groups) => {
                for group in groups {
                    let of = RoleName::Name(group.clone()).find(access, actor)?;
                    if access.is_superuser(of) && !is_super {
                        return Err(must("be superuser to alter superusers"));
                    }
                    role.member_of.insert(of);
                }
            }
            RoleOption::Members(of) => {
                for member in of {
                    members.push(member.find(access, actor)?);
                }
            }
        }
    }
    access.put(id, role);
    members.into_iter().try_for_each(|member| set_membership(access, member, id, true, &mut Vec::new()))
}

fn set_membership(
    access: &mut Access,
    id: u32,
    of: u32,
    gives: bool,
    notices: &mut Vec<SqlError>,
) -> Result<(), SqlError> {
    let (member, group) = (name_of(access, id), name_of(access, of));
    let mut role = access.role(id).cloned().ok_or_else(|| no_role(&member))?;
    if gives && (id == of || access.role(of).is_some() && is_below(access, of, id)) {
        let message = format!("role \"{group}\" is a member of role \"{member}\"");
        return Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message));
    }
    let changed = if gives { role.member_of.insert(of) } else { role.member_of.remove(&of) };
    if !changed {
        let is = if gives { "already" } else { "not" };
        let message = format!("role \"{member}\" is {is} a member of role \"{group}\"");
        notices.push(SqlError::new(SqlState("00000"), message));
    }
    access.put(id, role);
    Ok(())
}

/// Whether a role is a member of another one, also if it is a superuser.
fn is_below(access: &Access, role: u32, of: u32) -> bool {
    let groups = access.role(role).map(|role| &role.member_of);
    groups.is_some_and(|groups| groups.iter().any(|group| *group == of || is_below(access, *group, of)))
}

fn drop_role(access: &mut Access, id: u32, is_super: bool, actor: Actor, names: Names<'_>) -> Result<(), SqlError> {
    let name = name_of(access, id);
    let in_use = |message: &str| Err(SqlError::new(SqlState::OBJECT_IN_USE, message));
    if id == actor.current {
        return in_use("current user cannot be dropped");
    }
    if id == actor.session {
        return in_use("session user cannot be dropped");
    }
    if access.is_superuser(id) && !is_super {
        return Err(must("be superuser to drop superusers"));
    }
    if id == Access::FIRST {
        let message = format!("cannot drop role {name} because it is required by the database system");
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
    }
    let tables: Vec<DynHandle> =
        names.database.table_names().iter().filter_map(|table| names.database.open_dyn(table).ok()).collect();
    let named = |object: Object| match object {
        Object::Schema => format!("schema {SCHEMA}"),
        Object::Sequence(_) => {
            let all = names.database.sequences();
            let found = all.iter().find(|one| names.database.object_of_sequence(one) == object);
            found.map_or_else(String::new, |one| format!("sequence {}", one.definition().name))
        }
        object => {
            let table = tables.iter().find(|table| names.database.object_of(table) == object);
            table.map_or_else(String::new, |table| format!("table {}", table.definition().name))
        }
    };
    let depends = access.objects().filter_map(|(object, rights)| {
        if rights.owner == id {
            return Some(format!("owner of {}", named(object)));
        }
        let has = rights.grants.contains_key(&Grantee::Role(id));
        has.then(|| format!("privileges for {}", named(object)))
    });
    let depends: Vec<String> = depends.collect();
    if !depends.is_empty() {
        let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
        let error = SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message);
        return Err(error.detail(depends.join("\n")));
    }
    access.remove(id);
    Ok(())
}

/// The objects of a GRANT, with their names in errors.
fn objects_of(objects: &Objects, names: Names<'_>) -> Result<Vec<(Object, String)>, SqlError> {
    let table = |name: &String| {
        let table = names.table(name)?;
        Ok((names.database.object_of(&table), name.clone()))
    };
    let sequence = |name: &String| {
        let found = names.sequence(name)?;
        Some((names.database.object_of_sequence(&found), name.clone()))
    };
    match objects {
        Objects::Schema => Ok(vec![(Object::Schema, SCHEMA.to_owned())]),
        // As in PostgreSQL, sequences may be called tables here.
        Objects::Tables(tables) => tables.iter().map(|name| sequence(name).map_or_else(|| table(name), Ok)).collect(),
        Objects::Sequences(sequences) => {
            let known = |name: &String| {
                sequence(name).ok_or_else(|| match names.is_taken(name) {
                    true => SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")),
                    false => SqlError::no_table(name),
                })
            };
            sequences.iter().map(known).collect()
        }
        Objects::AllSequences => {
            let all = names.database.sequences().into_iter();
            Ok(all.map(|one| (names.database.object_of_sequence(&one), one.definition().name.to_string())).collect())
        }
        Objects::AllTables => names.database.table_names().iter().map(table).collect(),
    }
}

fn set_rights(
    access: &mut Access,
    object: Object,
    name: &str,
    (gives, privileges): (bool, Option<Privileges>),
    to: &[Grantee],
    actor: Actor,
) -> Result<(), SqlError> {
    let (all, kind) = match object {
        Object::Schema => (Privileges::OF_SCHEMAS, "schema"),
        Object::Table(_) => (Privileges::OF_TABLES, "table"),
        Object::Sequence(_) => (Privileges::OF_SEQUENCES, "sequence"),
    };
    let privileges = privileges.unwrap_or(all);
    if let Some((_, wrong)) = privileges.without(all).each().next() {
        let message = format!("invalid privilege type {wrong} for {kind}");
        return Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message));
    }
    let Rights { owner, .. } = access.rights(object);
    if !access.acts_as(actor.current, owner) {
        return Err(denied(format!("for {kind} {name}")));
    }
    let mut rights = access.rights(object);
    for grantee in to {
        // The owner may do everything anyway.
        if *grantee == Grantee::Role(owner) {
            continue;
        }
        let granted = rights.grants.entry(*grantee).or_default();
        *granted = if gives { *granted | privileges } else { granted.without(privileges) };
    }
    access.set_rights(object, rights);
    Ok(())
}

/// Whether a role owns a sequence, or the table whose rows it numbers.
pub(crate) fn owns_sequence(database: &Database, role: u32, sequence: &Sequence) -> bool {
    let access = database.access();
    let table = || database.open_dyn(&sequence.table()?).ok().map(|table| database.object_of(&table));
    let is_owner = |object| access.acts_as(role, access.rights(object).owner);
    // One that the transaction has made is its own until others see it.
    is_owner(database.object_of_sequence(sequence))
        || table().is_some_and(is_owner)
        || database.sequences().iter().all(|known| known != sequence)
}

/// Refuses what only owners may do.
pub(crate) fn check_owner(access: &Access, role: u32, object: Object, table: &str) -> Result<(), SqlError> {
    match access.acts_as(role, access.rights(object).owner) {
        true => Ok(()),
        false if matches!(object, Object::Sequence(_)) => Err(must(format!("be owner of sequence {table}"))),
        false => Err(must(format!("be owner of table {table}"))),
    }
}
