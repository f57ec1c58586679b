//! Reads dumps: rows become transactions of many rows each, in the order of the lines.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io::{self, BufRead};

use seriatim_engine::Reserved;

use super::csv::{NoRecord, Records};
use super::declaration::Declaration;
use super::json::{
    self, AccessBody, AccessLine, Cells, End, EndLine, Header, Kinds, RightsBody, RowLine, SequenceLine, VERSION,
};
use crate::catalog::evolution::Change;
use crate::catalog::{
    Access, ColumnDef, Object, ReferenceDef, Rights, RoleDef, Secret, SequenceChange, TableDef, check_references,
};
use crate::{Database, DynHandle, SchemaError, Sequence, Session, TransactError, Value};

/// Rows of one transaction.
const ROWS_MAX: usize = if cfg!(feature = "test-support") { 4 } else { 1024 };

/// Bytes of text whose rows one transaction has, at least.
const BYTES_MAX: usize = 1 << 20;

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The tables of the dump that exist now.
    pub tables: Vec<LoadedTable>,
    /// The last line whose row was loaded. The rows of all lines before it were loaded too.
    pub lines: u64,
}

/// What was loaded of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadedTable {
    /// Its name.
    pub name: String,
    /// Rows that were loaded.
    pub rows: u64,
    /// Whether the load created it.
    pub is_new: bool,
    /// The foreign keys of the dump that it lacks, as the rows that were loaded do not allow them. A load of the other
    /// rows adds them.
    pub lacks: Vec<String>,
}

/// A load ended early. What it had loaded until then stays.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: LoadProblem,
    /// What is loaded.
    pub loaded: Loaded,
}

/// Why a load ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadProblem {
    /// The input failed.
    Input(io::Error),
    /// The input does not begin as a dump does.
    NoDump {
        /// Its beginning.
        found: String,
    },
    /// The dump is of a later version.
    Version {
        /// That of the dump.
        found: u32,
        /// The newest that this program reads.
        newest: u32,
    },
    /// The line is none of those that a dump has.
    Line(String),
    /// The input ends before the dump does: the rest was cut off.
    Cut,
    /// The dump lacks tables or rows that it had.
    Missing {
        /// Tables and rows that the last line counts.
        counted: (u64, u64),
        /// Tables and rows that were found.
        found: (u64, u64),
    },
    /// The table of the declaration exists, and differs.
    Differs {
        /// The table.
        table: String,
        /// What differs, in words.
        difference: String,
    },
    /// A table cannot be created.
    Schema(SchemaError),
    /// A row of a table that the dump does not declare, or that the database does not have.
    UnknownTable {
        /// The name in the line.
        table: String,
        /// The tables that would be right.
        tables: Vec<String>,
    },
    /// The table has no such column.
    UnknownColumn {
        /// The table.
        table: String,
        /// The name in the line.
        column: String,
    },
    /// A column has no value, or two.
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The row cannot be inserted. [`TransactError::Duplicate`] if its key exists.
    Row(TransactError),
    /// Rows cannot be committed, whichever they are.
    Transact(TransactError),
}

impl fmt::Display for LoadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadProblem::Input(error) => write!(f, "the input cannot be read: {error}"),
            LoadProblem::NoDump { found } => write!(
                f,
                "{found:?} is not how a dump begins: `seriatim dump --format json` writes one; rows of one table can \
                 be CSV"
            ),
            LoadProblem::Version { found, newest } => {
                write!(f, "the dump has version {found}, and this program reads dumps up to version {newest}")
            }
            LoadProblem::Line(problem) => f.write_str(problem),
            LoadProblem::Cut => f.write_str("the dump ends before its last line: the rest was cut off"),
            LoadProblem::Missing { counted, found } => write!(
                f,
                "the dump had {} tables and {} rows, but {} tables and {} rows are there",
                counted.0, counted.1, found.0, found.1
            ),
            LoadProblem::Differs { table, difference } => write!(
                f,
                "table `{table}` exists with another declaration: {difference}; load the dump into a new directory"
            ),
            LoadProblem::Schema(error) => error.fmt(f),
            LoadProblem::UnknownTable { table, tables } => {
                write!(f, "there is no declaration of table `{table}`; {}", super::listed(tables))
            }
            LoadProblem::UnknownColumn { table, column } => write!(f, "table `{table}` has no column `{column}`"),
            LoadProblem::Column { table, column, problem } => {
                write!(f, "table `{table}`, column `{column}`: {problem}")
            }
            LoadProblem::Row(error) | LoadProblem::Transact(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadError { line, problem, loaded } = self;
        write!(f, "line {line}: {problem}; ")?;
        let some: Vec<String> = loaded.tables.iter().map(|table| format!("{} of {}", table.rows, table.name)).collect();
        let made = loaded.tables.iter().filter(|table| table.is_new).map(|table| &*table.name).collect::<Vec<_>>();
        match (loaded.lines, made.is_empty()) {
            (0, true) => f.write_str("nothing is loaded"),
            (0, false) => write!(f, "no row is loaded, and tables were created: {}", made.join(", ")),
            (lines, _) => write!(f, "loaded are the rows up to line {lines}: {}", some.join(", ")),
        }?;
        let lacks =
            |table: &LoadedTable| table.lacks.iter().map(|key| format!("{key} of {}", table.name)).collect::<Vec<_>>();
        match loaded.tables.iter().flat_map(lacks).collect::<Vec<_>>() {
            lacks if lacks.is_empty() => Ok(()),
            lacks => write!(
                f,
                "; foreign keys that these rows do not allow are added by a load of the other rows: {}",
                lacks.join(", ")
            ),
        }
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            LoadProblem::Input(error) => Some(error),
            LoadProblem::Schema(error) => Some(error),
            LoadProblem::Row(error) | LoadProblem::Transact(error) => Some(error),
            _ => None,
        }
    }
}

impl Database {
    /// Loads a dump in JSON: creates its tables and inserts its rows, in transactions of many rows. Tables that exist
    /// keep their rows, and must be declared alike. A key that exists is an error. Foreign keys of tables that it
    /// creates are added when all rows are there, so rows can be in any order. In tables that exist, rows follow those
    /// to which they refer. Foreign keys that such a table lacks, and the dump declares, are added at the end, too.
    ///
    /// # Errors
    /// [`LoadError`], with the line and what is loaded. A line that is wrong ends the load: the rows of the lines
    /// before it are loaded then. Foreign keys that these rows allow are added, and the error names the others. To
    /// resume, load a dump with the same declarations and the other rows: it adds the rest of them.
    pub fn load(&self, input: impl BufRead) -> Result<Loaded, LoadError> {
        let mut loader = Loader::new(self);
        let done = loader.dump(input);
        loader.finish(done)
    }

    /// Loads rows of a table from CSV. The first line has the names of columns, in any order. A column that it does not
    /// name has its default, or NULL. See [`Format::Csv`](super::Format::Csv).
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "part", key(id))] struct Part { id: u32, name: String, weight: Option<u64> }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let parts = db.create::<Part>()?;
    /// db.load_csv("part", &b"name,id,weight\nnut,1,\n\"\",2,9\n"[..])?;
    /// let found = db.session().snapshot(|tx| {
    ///     let (nut, other) = (tx.require(&parts, &1)?, tx.require(&parts, &2)?);
    ///     Ok((nut.weight(), other.name().to_owned()))
    /// })?;
    /// assert_eq!(*found, (None, String::new()));
    /// let error = db.load_csv("part", &b"name,id\nbolt,3\nscrew,2\n"[..]).unwrap_err();
    /// let says = "line 3: duplicate key id 2 in part; loaded are the rows up to line 2: 1 of part";
    /// assert_eq!(error.to_string(), says);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::load`].
    pub fn load_csv(&self, table: &str, input: impl BufRead) -> Result<Loaded, LoadError> {
        let mut loader = Loader::new(self);
        let done = loader.csv(table, input);
        loader.finish(done)
    }
}

/// A problem, and the line that has it.
type Wrong = (u64, LoadProblem);

/// A row that waits for its transaction.
struct Row {
    line: u64,
    table: usize,
    values: Vec<Value>,
}

struct Loader<'d> {
    db: &'d Database,
    session: Session,
    tables: Vec<DynHandle>,
    by_name: HashMap<String, usize>,
    batch: Vec<Row>,
    /// Bytes of the lines of the batch.
    bytes: usize,
    loaded: Loaded,
    /// The foreign keys that tables lack, which follow the rows: these are in any order.
    references: Vec<(String, Vec<ReferenceDef>)>,
    /// For each table: the sequence of its identity column with the greatest number that was loaded, in the order of
    /// the sequence. None if the dump says how far it is.
    identities: Vec<Option<(Sequence, Option<i64>)>>,
}

impl<'d> Loader<'d> {
    fn new(db: &'d Database) -> Loader<'d> {
        Loader {
            db,
            session: db.session(),
            tables: Vec::new(),
            by_name: HashMap::new(),
            batch: Vec::new(),
            bytes: 0,
            loaded: Loaded::default(),
            references: Vec::new(),
            identities: Vec::new(),
        }
    }

    /// Loads the rows before a line that is wrong.
    fn finish(mut self, done: Result<(), Wrong>) -> Result<Loaded, LoadError> {
        // An error of an earlier row comes first.
        let done = self.commit().and(done);
        let referred = self.refer();
        let advanced = self.advance_identities();
        match done.and(referred).and(advanced) {
            Ok(()) => Ok(self.loaded),
            Err((line, problem)) => Err(LoadError { line, problem, loaded: self.loaded }),
        }
    }

    /// Adds the foreign keys of the dump: if not all, then each that the loaded rows allow.
    fn refer(&mut self) -> Result<(), Wrong> {
        let references = std::mem::take(&mut self.references);
        let add = |references: &[(String, Vec<ReferenceDef>)]| {
            let begin = self.db.migration();
            let all = references.iter().fold(begin, |migration, (table, references)| {
                migration.change(table, references.iter().cloned().map(Change::add_reference))
            });
            all.run().map(drop)
        };
        let Err(error) = add(&references) else { return Ok(()) };
        for (table, references) in references {
            for reference in references {
                let name = reference.name.to_string();
                if add(&[(table.clone(), vec![reference])]).is_err()
                    && let Some(at) = self.by_name.get(&table)
                {
                    self.loaded.tables[*at].lacks.push(name);
                }
            }
        }
        Err((self.loaded.lines, LoadProblem::Schema(error)))
    }

    fn table(&mut self, handle: DynHandle, is_new: bool) {
        let name = handle.definition().name.to_string();
        self.by_name.insert(name.clone(), self.tables.len());
        self.identities.push(self.db.identity_of(&handle).map(|sequence| (sequence, None)));
        self.tables.push(handle);
        self.loaded.tables.push(LoadedTable { name, rows: 0, is_new, lacks: Vec::new() });
    }

    /// Adds a row to the transaction that is being gathered.
    fn row(&mut self, row: Row, bytes: usize) -> Result<(), Wrong> {
        self.batch.push(row);
        self.bytes += bytes;
        if self.batch.len() >= ROWS_MAX || self.bytes >= BYTES_MAX { self.commit() } else { Ok(()) }
    }

    /// Inserts the gathered rows. If one of them cannot be inserted, those before it are.
    fn commit(&mut self) -> Result<(), Wrong> {
        let (batch, tables) = (std::mem::take(&mut self.batch), &self.tables);
        self.bytes = 0;
        let (mut wanted, mut wrong) = (batch.len(), Ok(()));
        while wanted > 0 {
            let mut at = 0;
            let committed = self.session.transact(|tx| {
                for (number, row) in batch[..wanted].iter().enumerate() {
                    at = number;
                    tx.insert_overriding_dyn(&tables[row.table], &row.values)?;
                }
                Ok(())
            });
            match committed {
                Ok(_) => break,
                Err(
                    error @ (TransactError::Duplicate { .. }
                    | TransactError::ForeignKey { .. }
                    | TransactError::Check { .. }
                    | TransactError::User(_)
                    | TransactError::TooLarge { .. }),
                ) => {
                    wrong = Err((batch[at].line, LoadProblem::Row(error)));
                    wanted = at;
                }
                // Nothing of it was written.
                Err(TransactError::DiskBehind { .. }) if self.db.flush().is_ok() => {}
                Err(error) => return Err((batch[0].line, LoadProblem::Transact(error))),
            }
        }
        for row in &batch[..wanted] {
            self.loaded.tables[row.table].rows += 1;
            self.loaded.lines = row.line;
            self.note_identity(row);
        }
        wrong
    }
}

/// Roles and rights.
impl Loader<'_> {
    /// Adds the roles that there are not, and gives the rights to the tables that were created. The first superuser
    /// gets the password of the dump if it has none.
    fn access(&self, body: AccessBody) -> Result<(), LoadProblem> {
        let line = |problem: String| LoadProblem::Line(format!("roles and rights: {problem}"));
        let mut wrong = None;
        let changed = self.db.change_access(|access| {
            let added = add_roles(access, &body.roles, seriatim_base::rng::entropy);
            let rights =
                added.and_then(|ids| body.rights.iter().try_for_each(|rights| self.right(access, rights, &ids)));
            wrong = rights.err();
            if wrong.is_some() { Err(SchemaError::Busy) } else { Ok(()) }
        });
        match (wrong, changed) {
            (Some(problem), _) => Err(line(problem)),
            (None, changed) => changed.map_err(LoadProblem::Schema),
        }
    }

    fn right(&self, access: &mut Access, rights: &RightsBody, ids: &HashMap<u32, u32>) -> Result<(), String> {
        let object = match &rights.table {
            None if rights.sequence.is_some() => {
                let name = rights.sequence.as_deref().unwrap_or_default();
                let sequence = self.db.sequence(name).map_err(|error| error.to_string())?;
                let object = self.db.object_of_sequence(&sequence);
                // It may have rights of its own.
                if access.objects().any(|(known, _)| known == object) {
                    return Ok(());
                }
                object
            }
            None => Object::Schema,
            Some(name) => match self.by_name.get(name) {
                Some(&at) if self.loaded.tables[at].is_new => self.db.object_of(&self.tables[at]),
                // It has rights of its own.
                Some(_) => return Ok(()),
                None => return Err(format!("there is no table `{name}`")),
            },
        };
        let id = |id: u32| ids.get(&id).copied().ok_or_else(|| format!("there is no role {id}"));
        access.set_rights(object, Rights::of_written(rights.owner, &rights.grants, id)?);
        Ok(())
    }
}

/// Adds the roles that there are not. Returns the ids of all, by their ids in the dump.
fn add_roles(access: &mut Access, roles: &[(u32, RoleDef)], entropy: fn() -> u64) -> Result<HashMap<u32, u32>, String> {
    let mut ids = HashMap::new();
    let mut added = Vec::new();
    for (id, role) in roles {
        let known = match *id {
            Access::FIRST => Some(Access::FIRST),
            _ => access.named(&role.name).map(|(known, _)| known),
        };
        let own = known.unwrap_or_else(|| {
            let own = access.add(RoleDef { member_of: Default::default(), ..role.clone() });
            added.push((own, role));
            own
        });
        ids.insert(*id, own);
        if let (Access::FIRST, Some(mut first)) = (own, access.role(own).cloned())
            && first.password.is_none()
        {
            first.password.clone_from(&role.password);
            access.put(own, first);
        }
    }
    for (own, role) in added {
        let of = role.member_of.iter().map(|of| ids.get(of).copied().ok_or_else(|| format!("there is no role {of}")));
        let member_of = of.collect::<Result<_, _>>()?;
        access.put(own, RoleDef { member_of, ..role.clone() });
    }
    if access.secret().is_none() && access.roles().any(|(_, role)| role.password.is_some()) {
        let secret: String = (0..4).map(|_| format!("{:016x}", entropy())).collect();
        access.set_secret(Secret(secret));
    }
    Ok(ids)
}

/// Sequences.
impl Loader<'_> {
    /// Notes the number of a row that was loaded.
    fn note_identity(&mut self, row: &Row) {
        let Some((sequence, furthest)) = &mut self.identities[row.table] else { return };
        let at = self.tables[row.table].definition().identity_column().map(|column| column.index());
        if let Some(Value::Integer(number, _)) = at.map(|at| &row.values[at])
            && let Ok(number) = i64::try_from(*number)
        {
            let is_descending = sequence.definition().step() < 0;
            let is_further = furthest.is_none_or(|last| if is_descending { number < last } else { number > last });
            *furthest = if is_further { Some(number) } else { *furthest };
        }
    }

    /// Numbers that were loaded are not given again.
    fn advance_identities(&mut self) -> Result<(), Wrong> {
        for (sequence, last) in self.identities.drain(..).flatten() {
            let (low, high) = sequence.definition().range();
            if let Some(last) = last.filter(|last| (low..=high).contains(last)) {
                let advanced = sequence.advance(Reserved { last, given: true });
                advanced.map_err(|error| (self.loaded.lines, LoadProblem::Transact(error)))?;
            }
        }
        Ok(())
    }

    /// The sequence of a table that the load created gives its name away: its own one follows.
    fn make_room(&self, name: &str) -> Result<(), SchemaError> {
        let waiting = self.identities.iter().zip(&self.loaded.tables).filter(|(_, table)| table.is_new);
        let mut waiting = waiting.filter_map(|(identity, _)| identity.as_ref());
        if !waiting.any(|(sequence, _)| sequence.definition().name == name) {
            return Ok(());
        }
        let most = name.floor_char_boundary(TableDef::NAME_MAX - 20);
        let others = (0u64..).map(|number| format!("{}{number}", &name[..most]));
        let free = others.into_iter().find(|other| self.db.sequence(other).is_err()).unwrap_or_default();
        self.db.migration().alter_sequence(name, [SequenceChange::Rename(free.into())]).run().map(drop)
    }

    /// Makes a sequence as the dump has it, or lets one that exists continue behind both.
    fn sequence(&mut self, number: u64, line: SequenceLine<'_>) -> Result<(), Wrong> {
        let (state, wanted, table) = (line.state(), line.definition(), line.table);
        let (last, name, ty, options) = (state.last, wanted.name.to_string(), wanted.ty, wanted.options);
        let schema = |error| (number, LoadProblem::Schema(error));
        let differs = |problem: String| (number, LoadProblem::Line(format!("sequence `{name}` {problem}")));
        wanted.validate().map_err(|error| schema(SchemaError::Invalid(error)))?;
        let sequence = match &table {
            None => {
                self.make_room(&name).map_err(schema)?;
                match self.db.sequence(&name) {
                    Ok(sequence) if sequence.definition() == wanted && sequence.table().is_none() => sequence,
                    Ok(_) => return Err(differs("exists with another declaration".to_owned())),
                    Err(_) => {
                        self.db.migration().create_sequence(wanted).run().map_err(schema)?;
                        let restart = [SequenceChange::Restart(Some(last))];
                        self.db.migration().alter_sequence(&*name, restart).run().map_err(schema)?;
                        self.db.sequence(&name).map_err(schema)?
                    }
                }
            }
            Some(table) => {
                let at = self.by_name.get(&**table).copied();
                let own = at.and_then(|at| self.identities[at].take().map(|(own, last)| (own, last, at)));
                let Some((own, loaded, at)) = own else {
                    return Err(differs(format!("is of table `{table}`, which has no use for one")));
                };
                let is = own.definition();
                if is.ty != ty {
                    return Err(differs(format!("is of {ty}, and the column is {}", is.ty)));
                }
                if self.loaded.tables[at].is_new {
                    self.make_room(&name).map_err(schema)?;
                    let changes = [
                        SequenceChange::Start(wanted.options.start),
                        SequenceChange::Increment(wanted.step()),
                        SequenceChange::Minimum(wanted.options.minimum),
                        SequenceChange::Maximum(wanted.options.maximum),
                        SequenceChange::Cycle(options.cycle),
                        SequenceChange::Cache(options.cache),
                        SequenceChange::Rename(name.clone().into()),
                        SequenceChange::Restart(Some(last)),
                    ];
                    self.db.migration().alter_sequence(&*is.name, changes).run().map_err(schema)?;
                } else {
                    self.identities[at] = Some((own.clone(), loaded));
                }
                own
            }
        };
        let advanced = if state.given { sequence.advance(state) } else { Ok(()) };
        advanced.map_err(|error| (number, LoadProblem::Transact(error)))
    }
}

/// A dump in JSON.
impl Loader<'_> {
    fn dump(&mut self, input: impl BufRead) -> Result<(), Wrong> {
        let mut lines = Lines { input, number: 0, buffer: Vec::new() };
        let mut declared = Some(Vec::new());
        let begin = lines.next()?.unwrap_or_default();
        match serde_json::from_str::<Header<'_>>(begin) {
            Ok(Header { seriatim, version }) if seriatim == Header::DUMP && begin.starts_with('{') => {
                if version > VERSION {
                    return Err((lines.number, LoadProblem::Version { found: version, newest: VERSION }));
                }
            }
            _ => {
                let found = begin[..begin.floor_char_boundary(SHOWN_MAX)].to_owned();
                return Err((lines.number.max(1), LoadProblem::NoDump { found }));
            }
        }
        let (mut rows, mut latest, mut sequences, mut roles) = (0, 0, 0, 0);
        loop {
            let number = lines.number + 1;
            let wrong = |problem| (number, problem);
            let Some(text) = lines.next()? else { return Err(wrong(LoadProblem::Cut)) };
            if text.is_empty() {
                continue;
            }
            if !text.starts_with('{') {
                return Err(wrong(LoadProblem::Line(
                    "the line is no object of JSON, as all lines of a dump are".to_owned(),
                )));
            }
            let error = match serde_json::from_str::<RowLine<'_>>(text) {
                Ok(RowLine { table, row }) => {
                    self.declare(&mut declared)?;
                    // Rows of one table follow each other.
                    if self.loaded.tables.get(latest).is_none_or(|table_at| table_at.name != table) {
                        let unknown = || {
                            let tables = self.loaded.tables.iter().map(|table| table.name.clone()).collect();
                            wrong(LoadProblem::UnknownTable { table: table.to_string(), tables })
                        };
                        latest = *self.by_name.get(&*table).ok_or_else(unknown)?;
                    }
                    let values = values(self.tables[latest].definition(), &row).map_err(wrong)?;
                    rows += 1;
                    self.row(Row { line: number, table: latest, values }, text.len())?;
                    continue;
                }
                Err(error) => error,
            };
            let kinds: Kinds = serde_json::from_str(text).unwrap_or_default();
            if kinds.end.is_some() && kinds.row.is_none() && kinds.columns.is_none() {
                let EndLine { end } = serde_json::from_str(text).map_err(|error| wrong(line_problem(&error)))?;
                let tables = declared.as_ref().map_or(self.tables.len(), Vec::len) as u64;
                self.declare(&mut declared)?;
                if end != (End { tables, rows, sequences, roles }) {
                    let counted = (end.tables, end.rows);
                    return Err(wrong(LoadProblem::Missing { counted, found: (tables, rows) }));
                }
                return lines.end();
            }
            if kinds.sequence.is_some() && kinds.row.is_none() && kinds.columns.is_none() {
                let line: SequenceLine<'_> = serde_json::from_str(text).map_err(|error| wrong(line_problem(&error)))?;
                self.declare(&mut declared)?;
                self.commit()?;
                self.sequence(number, line)?;
                sequences += 1;
                continue;
            }
            if kinds.access.is_some() && kinds.row.is_none() && kinds.columns.is_none() {
                let AccessLine { access } = serde_json::from_str(text).map_err(|error| wrong(line_problem(&error)))?;
                self.declare(&mut declared)?;
                self.commit()?;
                roles += access.roles.len() as u64;
                self.access(access).map_err(wrong)?;
                continue;
            }
            if kinds.columns.is_none() || kinds.row.is_some() {
                return Err(wrong(line_problem(&error)));
            }
            let Some(declared) = &mut declared else {
                let problem = "a declaration follows a row; declarations come before all rows".to_owned();
                return Err(wrong(LoadProblem::Line(problem)));
            };
            let declaration: Declaration<'_> =
                serde_json::from_str(text).map_err(|error| wrong(line_problem(&error)))?;
            let table = TableDef::try_from(declaration).map_err(|error| wrong(LoadProblem::Schema(error)))?;
            if declared.iter().any(|(_, other): &(u64, TableDef)| other.name == table.name) {
                let problem = format!("table `{}` is declared twice", table.name);
                return Err(wrong(LoadProblem::Line(problem)));
            }
            declared.push((number, table));
        }
    }

    /// Creates the declared tables, or finds them.
    fn declare(&mut self, declared: &mut Option<Vec<(u64, TableDef)>>) -> Result<(), Wrong> {
        let Some(declared) = declared.take() else { return Ok(()) };
        let (mut found, mut references) = (Vec::new(), Vec::<(String, Vec<ReferenceDef>)>::new());
        for (line, table) in &declared {
            let existing = self.db.open_dyn(&table.name).ok();
            if let Some(existing) = &existing {
                // A load that ended early may have left it without some of them.
                let there = &existing.definition().references;
                let is_declared = |reference: &&ReferenceDef| table.references.contains(reference);
                let kept = there.iter().filter(is_declared).cloned().collect();
                let alike = TableDef { references: kept, ..table.clone() };
                if let Some(difference) = existing.definition().difference(&alike) {
                    return Err((*line, LoadProblem::Differs { table: table.name.to_string(), difference }));
                }
                let lacking = table.references.iter().filter(|reference| !there.contains(reference));
                references.push((table.name.to_string(), lacking.cloned().collect()));
            }
            found.push(existing);
        }
        let missing: Vec<&(u64, TableDef)> =
            declared.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(declared, _)| declared).collect();
        let line = missing.first().map_or(0, |(line, _)| *line);
        let others = self.db.table_names().into_iter().filter_map(|name| self.db.open_dyn(&name).ok());
        let others: Vec<TableDef> = others.map(|table| table.definition().clone()).collect();
        check_references(others.iter().chain(missing.iter().map(|(_, table)| table)))
            .map_err(|error| (line, LoadProblem::Schema(SchemaError::Invalid(error))))?;
        references.extend(missing.iter().map(|(_, table)| (table.name.to_string(), table.references.clone())));
        let made = match missing.is_empty() {
            true => Vec::new(),
            false => {
                let missing = missing
                    .into_iter()
                    .map(|(_, table)| TableDef { references: Vec::new(), ..table.clone() })
                    .collect();
                self.db.declare_all(missing).map_err(|error| (line, LoadProblem::Schema(error)))?
            }
        };
        references.retain(|(_, references)| !references.is_empty());
        self.references = references;
        let mut made = made.into_iter();
        for existing in found {
            let is_new = existing.is_none();
            if let Some(handle) = existing.or_else(|| made.next()) {
                self.table(handle, is_new);
            }
        }
        Ok(())
    }
}

/// Most bytes of a line that a message shows.
const SHOWN_MAX: usize = 80;

fn line_problem(error: &serde_json::Error) -> LoadProblem {
    // The error counts lines from that one.
    let text = error.to_string();
    let problem = text.rsplit_once(" at line ").map_or(&*text, |(problem, _)| problem);
    LoadProblem::Line(format!("at byte {}: {problem}", error.column()))
}

/// The values of a row, in the order of the columns.
fn values(table: &TableDef, Cells(cells): &Cells<'_>) -> Result<Vec<Value>, LoadProblem> {
    let mut values: Vec<Option<Value>> = Vec::new();
    values.resize_with(table.columns.len(), || None);
    for (number, (name, raw)) in cells.iter().enumerate() {
        // Usually the columns are in order.
        let at = match table.columns.get(number) {
            Some(column) if column.name == *name => number,
            _ => column(table, name)?,
        };
        let wrong = |problem: String| column_problem(table, &table.columns[at], problem);
        let value = json::value(&table.columns[at], raw).map_err(wrong)?;
        if values[at].replace(value).is_some() {
            return Err(wrong("it is in the line twice".to_owned()));
        }
    }
    whole(table, values)
}

fn column(table: &TableDef, name: &str) -> Result<usize, LoadProblem> {
    let unknown = || LoadProblem::UnknownColumn { table: table.name.to_string(), column: name.to_owned() };
    table.column(name).map(|column| column.index()).ok_or_else(unknown)
}

fn column_problem(table: &TableDef, column: &ColumnDef, problem: String) -> LoadProblem {
    LoadProblem::Column { table: table.name.to_string(), column: column.name.to_string(), problem }
}

/// A column without a value has its default, or NULL.
fn whole(table: &TableDef, values: Vec<Option<Value>>) -> Result<Vec<Value>, LoadProblem> {
    let or_default = |(column, value): (&ColumnDef, Option<Value>)| match value {
        Some(value) => Ok(value),
        // It is given a number.
        None if column.identity.is_some() => Ok(Value::NONE),
        None => match column.default_value() {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(column_problem(
                table,
                column,
                "it has no value, and is neither nullable nor has a default".to_owned(),
            )),
            Err(error) => Err(column_problem(table, column, error.to_string())),
        },
    };
    table.columns.iter().zip(values).map(or_default).collect()
}

/// Lines of text.
struct Lines<R> {
    input: R,
    /// Lines read so far.
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// The next line, without spaces around it; `None` at the end.
    fn next(&mut self) -> Result<Option<&str>, Wrong> {
        self.buffer.clear();
        let number = self.number + 1;
        let read = self.input.read_until(b'\n', &mut self.buffer);
        if read.map_err(|error| (number, LoadProblem::Input(error)))? == 0 {
            return Ok(None);
        }
        self.number = number;
        let text = std::str::from_utf8(&self.buffer);
        text.map(|text| Some(text.trim_ascii()))
            .map_err(|_| (number, LoadProblem::Line("the line is not in UTF-8".to_owned())))
    }

    /// Nothing follows the end of a dump.
    fn end(&mut self) -> Result<(), Wrong> {
        while let Some(text) = self.next()? {
            if !text.is_empty() {
                let problem = "the dump goes on behind its last line: load one dump after the other".to_owned();
                return Err((self.number, LoadProblem::Line(problem)));
            }
        }
        Ok(())
    }
}

/// CSV.
impl Loader<'_> {
    fn csv(&mut self, table: &str, input: impl BufRead) -> Result<(), Wrong> {
        let unknown = |_| {
            let tables = self.db.table_names();
            (1, LoadProblem::UnknownTable { table: table.to_owned(), tables })
        };
        let handle = self.db.open_dyn(table).map_err(unknown)?;
        self.table(handle.clone(), false);
        let table = handle.definition();
        let wrong = |line: u64, problem: String| (line, LoadProblem::Line(problem));
        let (mut records, mut fields) = (Records::new(input), Vec::new());
        let no_record = |line: u64, problem: NoRecord| match problem {
            NoRecord::Input(error) => (line, LoadProblem::Input(error)),
            NoRecord::Malformed(problem) => wrong(line, problem.to_owned()),
        };
        if !records.next(&mut fields).map_err(|problem| no_record(1, problem))? {
            return Err(wrong(1, "the input is empty: the first line has the names of columns".to_owned()));
        }
        let mut places = Vec::new();
        for name in &fields {
            let at = column(table, name.as_deref().unwrap_or_default()).map_err(|problem| (1, problem))?;
            if places.contains(&at) {
                return Err((1, column_problem(table, &table.columns[at], "it is named twice".to_owned())));
            }
            places.push(at);
        }
        loop {
            let (line, before) = (records.lines + 1, records.bytes);
            if !records.next(&mut fields).map_err(|problem| no_record(line, problem))? {
                return Ok(());
            }
            if fields.len() != places.len() {
                let (given, wanted) = (fields.len(), places.len());
                return Err(wrong(line, format!("there are {given} fields, and the first line names {wanted}")));
            }
            let mut values: Vec<Option<Value>> = Vec::new();
            values.resize_with(table.columns.len(), || None);
            for (&at, field) in places.iter().zip(&fields) {
                let column = &table.columns[at];
                let wrong = |problem: String| (line, column_problem(table, column, problem));
                let value = match field {
                    Some(text) => column.ty.parse(text).map_err(|error| wrong(error.to_string()))?,
                    // NULL, whatever the default is.
                    None if column.nullable => Value::NONE,
                    None => {
                        let problem = "an empty field is NULL, and the column is not nullable; an empty text is \"\"";
                        return Err(wrong(problem.to_owned()));
                    }
                };
                let is_null = matches!(value, Value::Option(None));
                values[at] = Some(if column.nullable && !is_null { value.some() } else { value });
            }
            let values = whole(table, values).map_err(|problem| (line, problem))?;
            self.row(Row { line, table: 0, values }, records.bytes - before)?;
        }
    }
}
