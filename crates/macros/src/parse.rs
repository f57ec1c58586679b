//! From the derive's input to a declaration. Every error is reported at its token, with what to write instead.
//!
//! Errors are collected, so that one compilation shows them all. Facts that tokens do not show (whether a type
//! is a column's, an optional key column) are checked by the types in the generated code.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Field, Fields, Ident, Lit, LitStr, Path, Result, Token, Type,
    Visibility, parenthesized,
};

/// Most columns of a key: the longest tuple that is a key.
const KEY_PARTS_MAX: usize = 8;
/// Longest name of a table or index, in bytes.
const NAME_MAX: usize = 63;
/// The column that numbers the rows of a table without a key.
const ROW_ID: &str = "row_id";

/// A table as declared.
pub(crate) struct Declaration {
    pub(crate) row: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) key: Vec<KeyColumn>,
    pub(crate) is_hash: bool,
    pub(crate) capacity: Option<Expr>,
    /// How many of the key's first columns rows share that are kept together.
    pub(crate) cluster: usize,
    pub(crate) partitioning: Partitioning,
    pub(crate) indexes: Vec<Index>,
    pub(crate) references: Vec<Reference>,
    /// Conditions, with their names if they have one.
    pub(crate) checks: Vec<(Option<LitStr>, LitStr)>,
    /// Whether a table of an earlier declaration is changed to this one when it is opened.
    pub(crate) evolves: bool,
    /// Whether the last column is the row id, which is no field of the struct.
    pub(crate) is_without_key: bool,
    /// Where the catalog is found.
    pub(crate) catalog: Path,
}

/// Which partition a row is in.
#[derive(Clone, Copy)]
pub(crate) enum Partitioning {
    /// By the value of the key's column at this position.
    KeyColumn(usize),
    Replicated,
}

pub(crate) struct Column {
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) ty: Type,
    pub(crate) is_immutable: bool,
    /// The value of rows that are written without one, as text.
    pub(crate) default: Option<String>,
    /// The name that it had in earlier declarations.
    pub(crate) renamed_from: Option<LitStr>,
    pub(crate) identity: Option<Identity>,
    pub(crate) docs: Vec<Attribute>,
}

/// That a sequence gives the values of a column.
pub(crate) struct Identity {
    pub(crate) is_always: bool,
    /// Options of the sequence, each with its value.
    pub(crate) options: Vec<(Ident, Lit)>,
    pub(crate) span: Span,
}

/// A column of a key, by position.
pub(crate) struct KeyColumn {
    pub(crate) column: usize,
    pub(crate) is_descending: bool,
    /// Where the key names it.
    pub(crate) span: Span,
}

pub(crate) struct Index {
    pub(crate) name: LitStr,
    /// The name of the constant.
    pub(crate) constant: Ident,
    pub(crate) parts: Vec<KeyColumn>,
    pub(crate) is_unique: bool,
    pub(crate) nulls_not_distinct: bool,
    pub(crate) checked: Checked,
    pub(crate) is_hash: bool,
}

/// A foreign key.
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) table: LitStr,
    /// None: those of the primary key of that table.
    pub(crate) referenced: Vec<String>,
    pub(crate) on_delete: OnChange,
    pub(crate) on_update: OnChange,
    pub(crate) checked: Checked,
}

/// What a change of a referenced row does.
#[derive(Clone, Copy, Default)]
pub(crate) enum OnChange {
    #[default]
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

/// When a foreign key or a unique index is checked.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Checked {
    #[default]
    Immediately,
    Deferrable,
    Deferred,
}

/// The errors so far.
#[derive(Default)]
struct Mistakes(Option<Error>);

impl Mistakes {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn say(&mut self, span: Span, message: impl std::fmt::Display) {
        self.add(Error::new(span, message));
    }

    /// Refuses the attributes of this name, which belong elsewhere.
    fn refuse(&mut self, attributes: &[Attribute], name: &str, message: &str) {
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(name)) {
            self.add(Error::new_spanned(attribute, message));
        }
    }

    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }
}

/// Reads the declaration.
pub(crate) fn declaration(input: &DeriveInput) -> Result<Declaration> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "a table is a struct: its fields are the columns"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.ident.span(), "a table's struct has named fields: they name the columns"));
    };
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new(parameter.span(), "a table's struct has no parameters: its columns have one type each"));
    }
    let mut mistakes = Mistakes::default();
    let mut attributes = Attributes::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("table")) {
        mistakes.note(attributes.read(attribute));
    }
    let all_read = mistakes.0.is_none();
    mistakes.refuse(&input.attrs, "column", "`column` stands on a field; on the struct write #[table(...)]");
    let mut columns: Vec<Column> = fields.named.iter().map(|field| column(field, &mut mistakes)).collect();
    let catalog = attributes.catalog.clone().unwrap_or_else(|| syn::parse_quote!(::seriatim::catalog));
    if let Some(span) = attributes.without_key {
        without_key(span, &attributes, &input.vis, &catalog, &mut columns, &mut mistakes);
    }
    for other in columns.iter().filter_map(|column| column.identity.as_ref()).skip(1) {
        mistakes.say(other.span, "a table has one identity column; leave out identity here");
    }

    let key = match &attributes.key {
        _ if attributes.without_key.is_some() => {
            let span = input.ident.span();
            vec![KeyColumn { column: columns.len() - 1, is_descending: false, span }]
        }
        Some((span, parts)) => resolve("a primary key", *span, parts, &columns, &mut mistakes),
        // The attribute could not be read, which is reported already.
        None if !all_read => Vec::new(),
        None => {
            let example = columns.first().map_or("id".to_owned(), |column| column.name.to_string());
            mistakes.say(
                input.ident.span(),
                format!("a table needs a primary key: write #[table(key({example}))], or #[table(without_key)]"),
            );
            Vec::new()
        }
    };
    let cluster = match &attributes.cluster {
        Some((span, parts)) => cluster(*span, parts, &attributes, &mut mistakes),
        None => 0,
    };
    let partitioning = partitioning(&attributes, cluster, &mut mistakes);
    if let Some(name) = &attributes.name {
        check_name("a table's name", name, &mut mistakes);
    }
    let mut indexes: Vec<Index> = Vec::new();
    for index in attributes.indexes {
        check_name("an index's name", &index.name, &mut mistakes);
        if indexes.iter().any(|earlier| earlier.name.value().eq_ignore_ascii_case(&index.name.value())) {
            mistakes.say(index.name.span(), "another index has this name; give each its own");
        }
        let parts = resolve("an index", index.name.span(), &index.parts, &columns, &mut mistakes);
        let Some(constant) = mistakes.note(constant(&index.name)) else { continue };
        let NamedIndex { name, is_unique, nulls_not_distinct, checked, is_hash, .. } = index;
        indexes.push(Index { name, constant, parts, is_unique, nulls_not_distinct, checked, is_hash });
    }
    let name = attributes.name.as_ref().map_or_else(|| snake_case(&input.ident.unraw().to_string()), LitStr::value);
    let references = references(attributes.references, &name, &columns, &mut mistakes);
    for (name, condition) in &attributes.checks {
        if let Some(name) = name {
            check_name("a condition's name", name, &mut mistakes);
        }
        check_condition(condition, &columns, &mut mistakes);
    }
    check_methods(&columns, &key, &mut mistakes);
    if let Some(error) = mistakes.0 {
        return Err(error);
    }
    Ok(Declaration {
        row: input.ident.clone(),
        visibility: input.vis.clone(),
        name,
        columns,
        key,
        is_hash: attributes.hash == Some(true),
        capacity: attributes.capacity,
        cluster,
        partitioning,
        indexes,
        references,
        checks: attributes.checks,
        evolves: attributes.evolve.is_some(),
        is_without_key: attributes.without_key.is_some(),
        catalog,
    })
}

/// Adds the row id behind the columns of a table without a key.
fn without_key(
    span: Span,
    attributes: &Attributes,
    visibility: &Visibility,
    catalog: &Path,
    columns: &mut Vec<Column>,
    mistakes: &mut Mistakes,
) {
    if let Some((key, _)) = &attributes.key {
        mistakes.say(*key, "a table has a key or is without_key; leave out one of them");
    }
    let others = [("cluster", &attributes.cluster), ("partition", &attributes.partition)];
    for (word, (at, _)) in others.iter().filter_map(|(word, given)| given.as_ref().map(|given| (word, given))) {
        mistakes.say(*at, format!("{word}(...) names columns of the key, and the table is without_key"));
    }
    for identity in columns.iter().filter_map(|column| column.identity.as_ref()) {
        mistakes.say(identity.span, "a table without_key numbers its rows; make this column the key instead");
    }
    let name = Ident::new(ROW_ID, span);
    if let Some(taken) = columns.iter().find(|column| column.name.unraw() == ROW_ID) {
        mistakes.say(taken.name.span(), format!("a table without_key has a column `{ROW_ID}`; rename this one"));
    }
    columns.push(Column {
        name,
        visibility: visibility.clone(),
        ty: syn::parse_quote!(#catalog::RowId),
        is_immutable: false,
        default: None,
        renamed_from: None,
        identity: None,
        docs: Vec::new(),
    });
}

/// `column` or `desc(column)`, before columns are looked up.
struct NamedPart {
    name: Ident,
    is_descending: bool,
}

impl Parse for NamedPart {
    fn parse(input: ParseStream<'_>) -> Result<NamedPart> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error("write a column's name, or desc(name)"));
        }
        let name = input.call(Ident::parse_any)?;
        if !input.peek(syn::token::Paren) {
            return Ok(NamedPart { name, is_descending: false });
        }
        if name != "desc" && name != "asc" {
            return Err(Error::new(name.span(), "write a column's name, or desc(name)"));
        }
        let inner;
        parenthesized!(inner in input);
        let part = NamedPart { name: inner.call(Ident::parse_any)?, is_descending: name == "desc" };
        if inner.is_empty() { Ok(part) } else { Err(inner.error("desc(...) takes one column; repeat it for each")) }
    }
}

fn named_parts(input: ParseStream<'_>) -> Result<Vec<NamedPart>> {
    let inner;
    parenthesized!(inner in input);
    Ok(Punctuated::<NamedPart, Token![,]>::parse_terminated(&inner)?.into_iter().collect())
}

#[derive(Default)]
struct Attributes {
    name: Option<LitStr>,
    key: Option<(Span, Vec<NamedPart>)>,
    cluster: Option<(Span, Vec<NamedPart>)>,
    partition: Option<(Span, Vec<NamedPart>)>,
    replicated: Option<Span>,
    hash: Option<bool>,
    capacity: Option<Expr>,
    indexes: Vec<NamedIndex>,
    references: Vec<NamedReference>,
    checks: Vec<(Option<LitStr>, LitStr)>,
    evolve: Option<Span>,
    without_key: Option<Span>,
    catalog: Option<Path>,
}

struct NamedIndex {
    name: LitStr,
    parts: Vec<NamedPart>,
    is_unique: bool,
    nulls_not_distinct: bool,
    checked: Checked,
    is_hash: bool,
}

struct NamedReference {
    span: Span,
    name: Option<LitStr>,
    columns: Vec<Ident>,
    table: LitStr,
    key: Vec<Ident>,
    on_delete: OnChange,
    on_update: OnChange,
    checked: Checked,
}

/// Sets an attribute that may occur once.
fn once<T>(slot: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>, message: &str) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(meta.error(message)),
    }
}

impl Attributes {
    fn read(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            let is = |word: &str| meta.path.is_ident(word);
            if is("name") {
                once(&mut self.name, meta.value()?.parse()?, &meta, "the name is given twice")
            } else if is("key") {
                let key = (meta.path.span(), named_parts(meta.input)?);
                once(&mut self.key, key, &meta, "the primary key is given twice; list all its columns in one key(...)")
            } else if is("cluster") {
                let cluster = (meta.path.span(), named_parts(meta.input)?);
                once(
                    &mut self.cluster,
                    cluster,
                    &meta,
                    "the clustering is given twice; list all its columns in one \
                    cluster(...)",
                )
            } else if is("partition") {
                let partition = (meta.path.span(), named_parts(meta.input)?);
                once(&mut self.partition, partition, &meta, "the partitioning is given twice")
            } else if is("replicated") {
                once(&mut self.replicated, meta.path.span(), &meta, "replicated is given twice")
            } else if is("evolve") {
                once(&mut self.evolve, meta.path.span(), &meta, "evolve is given twice")
            } else if is("without_key") {
                once(&mut self.without_key, meta.path.span(), &meta, "without_key is given twice")
            } else if is("hash") || is("ordered") {
                once(&mut self.hash, is("hash"), &meta, "a table is either hash or ordered; write one of them")
            } else if is("capacity") {
                once(&mut self.capacity, meta.value()?.parse()?, &meta, "the capacity is given twice")
            } else if is("crate") {
                let value = meta.value()?;
                let path = match value.peek(LitStr) {
                    true => value.parse::<LitStr>()?.parse_with(Path::parse_mod_style)?,
                    false => value.call(Path::parse_mod_style)?,
                };
                once(&mut self.catalog, path, &meta, "the crate is given twice")
            } else if is("index") {
                let inner;
                parenthesized!(inner in meta.input);
                self.indexes.push(index(&inner, meta.path.span())?);
                Ok(())
            } else if is("references") {
                let inner;
                parenthesized!(inner in meta.input);
                self.references.push(reference(&inner, meta.path.span())?);
                Ok(())
            } else if is("check") {
                let inner;
                parenthesized!(inner in meta.input);
                self.checks.push(check(&inner)?);
                Ok(())
            } else {
                Err(meta.error(
                    "unknown table attribute; write key(...), without_key, cluster(...), partition(...), replicated, \
                     name = \"...\", hash, ordered, capacity = N, evolve, check(\"...\"), index(...) or \
                     references(...)",
                ))
            }
        })
    }
}

/// `name = "...", "condition"`, of which the name may be left out.
fn check(input: ParseStream<'_>) -> Result<(Option<LitStr>, LitStr)> {
    let mut name = None;
    if !input.peek(LitStr) {
        let word = input.call(Ident::parse_any)?;
        if word != "name" {
            return Err(Error::new(word.span(), "write check(name = \"...\", \"...\") or check(\"...\")"));
        }
        input.parse::<Token![=]>()?;
        name = Some(input.parse::<LitStr>()?);
        input.parse::<Token![,]>()?;
    }
    let condition = input.parse::<LitStr>()?;
    if input.is_empty() { Ok((name, condition)) } else { Err(input.error("repeat check(...) for another condition")) }
}

/// Words of conditions that name no column.
const CONDITION_WORDS: &str = " and as between both bigint bool boolean bytea case cast char character date decimal \
                               distinct double else end escape false float float4 float8 for from i128 i8 in int int2 \
                               int4 int8 integer interval is leading like not null numeric or precision real smallint \
                               text then time timestamp timestamptz trailing true u128 u16 u32 u64 u8 unknown uuid \
                               varchar varying when with without zone ";

/// Whether the words of a condition are columns. What else is wrong with it is found when the table is declared.
fn check_condition(condition: &LitStr, columns: &[Column], mistakes: &mut Mistakes) {
    let text = condition.value();
    let names = || columns.iter().map(|column| column.name.unraw().to_string());
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let mut rest = &text[..];
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => match rest[1..].find(first) {
                Some(end) => end + 2,
                None => return mistakes.say(condition.span(), "the quotes in this condition do not end"),
            },
            _ if is_name(first) => rest.find(|character| !is_name(character)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        let (name, is_quoted) = match first {
            '"' => (token[1..length - 1].to_owned(), true),
            _ => (token.to_ascii_lowercase(), false),
        };
        let is_word = is_quoted || first.is_alphabetic() || first == '_';
        let is_other =
            !is_quoted && (behind.trim_start().starts_with('(') || CONDITION_WORDS.contains(&format!(" {name} ")));
        if is_word && !is_other && !names().any(|column| column == name) {
            let known = names().collect::<Vec<_>>().join(", ");
            let problem = format!("this condition names `{name}`, which is no column; the columns are {known}");
            return mistakes.say(condition.span(), problem);
        }
        rest = behind;
    }
}

fn index(input: ParseStream<'_>, span: Span) -> Result<NamedIndex> {
    let (mut name, mut parts, mut is_unique, mut is_hash, mut is_ordered) = (None, None, false, false, false);
    let (mut nulls, mut checked, mut given_twice) = (None, None, false);
    while !input.is_empty() {
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "name" => {
                input.parse::<Token![=]>()?;
                given_twice = name.replace(input.parse::<LitStr>()?).is_some();
            }
            "columns" => given_twice = parts.replace(named_parts(input)?).is_some(),
            "unique" => is_unique = true,
            "nulls_not_distinct" => nulls = Some(word.span()),
            "deferrable" => given_twice = checked.replace((Checked::Deferrable, word.span())).is_some(),
            "deferred" => given_twice = checked.replace((Checked::Deferred, word.span())).is_some(),
            "hash" => is_hash = true,
            "ordered" => is_ordered = true,
            _ => {
                let known = "name = \"...\", columns(...), unique, nulls_not_distinct, deferrable, deferred, hash or \
                             ordered";
                return Err(Error::new(word.span(), format!("unknown index attribute; write {known}")));
            }
        }
        if given_twice {
            return Err(Error::new(
                word.span(),
                format!("`{word}` is given twice; repeat index(...) for another index"),
            ));
        }
        if is_hash && is_ordered {
            return Err(Error::new(word.span(), "an index is either hash or ordered; write one of them"));
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    let name = name.ok_or_else(|| Error::new(span, "an index needs a name: write name = \"by_...\""))?;
    let parts = parts.ok_or_else(|| Error::new(span, "an index needs columns: write columns(...)"))?;
    if let Some(span) = nulls.filter(|_| !is_unique) {
        return Err(Error::new(
            span,
            "nulls_not_distinct is said of unique indexes; write unique too, or leave it out",
        ));
    }
    if let Some((_, span)) = checked.filter(|_| !is_unique) {
        return Err(Error::new(
            span,
            "deferrable and deferred are said of unique indexes; write unique too, or leave it out",
        ));
    }
    let checked = checked.map(|(checked, _)| checked).unwrap_or_default();
    Ok(NamedIndex { name, parts, is_unique, nulls_not_distinct: nulls.is_some(), checked, is_hash })
}

fn idents(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let inner;
    parenthesized!(inner in input);
    Ok(Punctuated::<Ident, Token![,]>::parse_terminated_with(&inner, Ident::parse_any)?.into_iter().collect())
}

fn reference(input: ParseStream<'_>, span: Span) -> Result<NamedReference> {
    let (mut name, mut columns, mut table, mut key) = (None, None, None, None);
    let (mut on_delete, mut on_update, mut checked) = (None, None, None);
    while !input.is_empty() {
        let word = input.call(Ident::parse_any)?;
        let text = || -> Result<LitStr> {
            input.parse::<Token![=]>()?;
            input.parse()
        };
        let given_twice = match word.to_string().as_str() {
            "name" => name.replace(text()?).is_some(),
            "columns" => columns.replace(idents(input)?).is_some(),
            "table" => table.replace(text()?).is_some(),
            "key" => key.replace(idents(input)?).is_some(),
            "on_delete" => on_delete.replace(on_change(&text()?)?).is_some(),
            "on_update" => on_update.replace(on_change(&text()?)?).is_some(),
            "deferrable" => checked.replace(Checked::Deferrable).is_some(),
            "deferred" => checked.replace(Checked::Deferred).is_some(),
            _ => {
                let known = "columns(...), table = \"...\", key(...), on_delete = \"...\", on_update = \"...\", \
                             deferrable, deferred or name = \"...\"";
                return Err(Error::new(word.span(), format!("unknown attribute of a reference; write {known}")));
            }
        };
        if given_twice {
            let message = format!("`{word}` is given twice; repeat references(...) for another reference");
            return Err(Error::new(word.span(), message));
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(NamedReference {
        span,
        name,
        columns: columns.ok_or_else(|| Error::new(span, "a reference needs columns: write columns(...)"))?,
        table: table.ok_or_else(|| Error::new(span, "a reference needs a table: write table = \"...\""))?,
        key: key.unwrap_or_default(),
        on_delete: on_delete.unwrap_or_default(),
        on_update: on_update.unwrap_or_default(),
        checked: checked.unwrap_or_default(),
    })
}

fn on_change(text: &LitStr) -> Result<OnChange> {
    Ok(match text.value().as_str() {
        "no action" => OnChange::NoAction,
        "restrict" => OnChange::Restrict,
        "cascade" => OnChange::Cascade,
        "set null" => OnChange::SetNull,
        "set default" => OnChange::SetDefault,
        _ => {
            let known = "write \"no action\", \"restrict\", \"cascade\", \"set null\" or \"set default\"";
            return Err(Error::new(text.span(), known));
        }
    })
}

/// The references of a table, with their names.
fn references(named: Vec<NamedReference>, table: &str, columns: &[Column], mistakes: &mut Mistakes) -> Vec<Reference> {
    let mut references: Vec<Reference> = Vec::new();
    for reference in named {
        if let Some(unknown) = reference.columns.iter().find(|name| columns.iter().all(|column| column.name != **name))
        {
            mistakes
                .say(unknown.span(), format!("there is no field `{unknown}`; a reference names columns of its table"));
        }
        let text = |names: &[Ident]| names.iter().map(|name| name.unraw().to_string()).collect::<Vec<_>>();
        let (own, referenced) = (text(&reference.columns), text(&reference.key));
        let span = reference.name.as_ref().map_or(reference.span, LitStr::span);
        let name = reference.name.map_or_else(|| format!("{table}_{}_fkey", own.join("_")), |name| name.value());
        check_name("a reference's name", &LitStr::new(&name, span), mistakes);
        if references.iter().any(|earlier| earlier.name == name) {
            mistakes.say(span, format!("another reference is called `{name}`; write name = \"...\""));
        }
        let NamedReference { table, on_delete, on_update, checked, .. } = reference;
        references.push(Reference { name, columns: own, table, referenced, on_delete, on_update, checked });
    }
    references
}

fn column(field: &Field, mistakes: &mut Mistakes) -> Column {
    let (mut is_immutable, mut default, mut renamed_from, mut identity) = (false, None, None, None);
    mistakes.refuse(&field.attrs, "table", "`table` stands on the struct; on a field write #[column(immutable)]");
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("column")) {
        mistakes.note(attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("immutable") {
                is_immutable = true;
                return Ok(());
            }
            if meta.path.is_ident("default") {
                return once(&mut default, literal(meta.value()?)?, &meta, "the default is given twice");
            }
            if meta.path.is_ident("renamed_from") {
                return once(&mut renamed_from, meta.value()?.parse()?, &meta, "the earlier name is given twice");
            }
            if meta.path.is_ident("identity") {
                let read = read_identity(&meta)?;
                return once(&mut identity, read, &meta, "the identity is given twice");
            }
            Err(meta
                .error("unknown column attribute; write immutable, identity, default = ... or renamed_from = \"...\""))
        }));
    }
    let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    // Named fields have names.
    let name = field.ident.clone().unwrap_or_else(|| Ident::new("_", field.span()));
    let (visibility, ty) = (field.vis.clone(), field.ty.clone());
    Column { name, visibility, ty, is_immutable, default, renamed_from, identity, docs }
}

/// `identity`, or `identity(always, start = 1000)`.
fn read_identity(meta: &ParseNestedMeta<'_>) -> Result<Identity> {
    let mut identity = Identity { is_always: false, options: Vec::new(), span: meta.path.span() };
    if !meta.input.peek(syn::token::Paren) {
        return Ok(identity);
    }
    meta.parse_nested_meta(|option| {
        let known = ["start", "increment", "minimum", "maximum", "cache"];
        match option.path.get_ident() {
            Some(name) if name == "always" => identity.is_always = true,
            Some(name) if name == "cycle" => {
                identity.options.push((name.clone(), Lit::Bool(syn::LitBool::new(true, name.span()))));
            }
            Some(name) if known.iter().any(|known| name == known) => {
                let value = option.value()?;
                let sign = value.parse::<Option<Token![-]>>()?.map_or("", |_| "-");
                let number: syn::LitInt = value.parse()?;
                let number = syn::LitInt::new(&format!("{sign}{}", number.base10_digits()), number.span());
                identity.options.push((name.clone(), Lit::Int(number)));
            }
            _ => {
                return Err(option.error(
                    "unknown option of an identity; write always, start = N, increment = N, minimum = N, maximum = \
                     N, cycle or cache = N",
                ));
            }
        }
        Ok(())
    })?;
    Ok(identity)
}

/// The text of a default: a number, a truth value, a character, or the value as the schema writes it in a string.
fn literal(input: ParseStream<'_>) -> Result<String> {
    let sign = if input.parse::<Option<Token![-]>>()?.is_some() { "-" } else { "" };
    let literal: Lit = input.parse()?;
    let text = match &literal {
        Lit::Int(number) => number.base10_digits().to_owned(),
        Lit::Float(number) => number.base10_digits().to_owned(),
        Lit::Str(text) if sign.is_empty() => text.value(),
        Lit::Bool(value) if sign.is_empty() => value.value.to_string(),
        Lit::Char(value) if sign.is_empty() => value.value().to_string(),
        _ => {
            return Err(Error::new_spanned(literal, "a default is a number, a bool, a char, or a string that says it"));
        }
    };
    Ok(format!("{sign}{text}"))
}

/// Looks up the columns of a key.
fn resolve(what: &str, span: Span, parts: &[NamedPart], columns: &[Column], mistakes: &mut Mistakes) -> Vec<KeyColumn> {
    if parts.is_empty() {
        mistakes.say(span, format!("{what} has at least one column"));
    }
    if let Some(part) = parts.get(KEY_PARTS_MAX) {
        mistakes.say(part.name.span(), format!("{what} has at most {KEY_PARTS_MAX} columns"));
    }
    let mut found: Vec<KeyColumn> = Vec::new();
    for part in parts {
        let Some(column) = columns.iter().position(|column| column.name == part.name) else {
            let names: Vec<String> = columns.iter().map(|column| format!("`{}`", column.name)).collect();
            mistakes.say(part.name.span(), format!("no column `{}`; the columns are {}", part.name, names.join(", ")));
            continue;
        };
        if found.iter().any(|earlier| earlier.column == column) {
            mistakes.say(part.name.span(), format!("{what} names `{}` twice", part.name));
        }
        found.push(KeyColumn { column, is_descending: part.is_descending, span: part.name.span() });
    }
    found
}

/// How many columns rows share that are kept together: the first ones of the key, but not all.
fn cluster(span: Span, parts: &[NamedPart], attributes: &Attributes, mistakes: &mut Mistakes) -> usize {
    let Some((_, key)) = &attributes.key else { return 0 };
    if parts.is_empty() || parts.len() >= key.len() {
        mistakes.say(
            span,
            "a table is clustered by the first columns of its key, at least one and not all; write \
            cluster(a) of key(a, b)",
        );
    }
    for (at, part) in parts.iter().enumerate() {
        if part.is_descending {
            mistakes.say(
                part.name.span(),
                "cluster(...) names columns of the key, whose order the key says; leave out desc",
            );
        } else if key.get(at).is_none_or(|key| key.name != part.name) {
            mistakes.say(
                part.name.span(),
                format!(
                    "`{}` is not column number {} of the key; cluster(...) names its first columns",
                    part.name,
                    at + 1
                ),
            );
        }
    }
    if attributes.hash == Some(true) {
        mistakes.say(span, "a clustered table is ordered; leave out hash or cluster(...)");
    }
    parts.len()
}

/// The partition of a row: by a column of the key, which is the first by default.
fn partitioning(attributes: &Attributes, cluster: usize, mistakes: &mut Mistakes) -> Partitioning {
    let Some((span, parts)) = &attributes.partition else {
        return attributes.replicated.map_or(Partitioning::KeyColumn(0), |_| Partitioning::Replicated);
    };
    if let Some(replicated) = attributes.replicated {
        mistakes.say(replicated, "a replicated table is in every partition; leave out replicated or partition(...)");
    }
    let [part] = &parts[..] else {
        mistakes.say(*span, "a table is partitioned by one column of its key; write partition(a) of key(a, b)");
        return Partitioning::KeyColumn(0);
    };
    if part.is_descending {
        mistakes.say(part.name.span(), "partition(...) names a column, whatever its order; leave out desc");
    }
    let key = attributes.key.iter().flat_map(|(_, key)| key);
    match key.clone().position(|key| key.name == part.name) {
        Some(at) if cluster > 0 && at >= cluster => mistakes.say(
            part.name.span(),
            format!("rows that are kept together differ in `{}`; name it in cluster(...) too", part.name),
        ),
        Some(at) => return Partitioning::KeyColumn(at),
        // The key could not be read, which is reported already.
        None if attributes.key.is_none() => {}
        None => mistakes.say(
            part.name.span(),
            format!(
                "`{}` is no column of the key; a row is found, and stays, in one partition by its key, so name it in \
                 key(...) too",
                part.name
            ),
        ),
    }
    Partitioning::KeyColumn(0)
}

fn check_name(what: &str, name: &LitStr, mistakes: &mut Mistakes) {
    match name.value().len() {
        0 => mistakes.say(name.span(), format!("{what} is not empty")),
        1..=NAME_MAX => {}
        bytes => mistakes.say(name.span(), format!("{what} has at most {NAME_MAX} bytes, not {bytes}")),
    }
}

/// The constant for an index: its name in upper case.
fn constant(name: &LitStr) -> Result<Ident> {
    let upper = name.value().to_uppercase();
    let mut constant = syn::parse_str::<Ident>(&upper).map_err(|_| {
        let message =
            format!("`{upper}` cannot name a constant; write letters, digits and underscores, as in \"by_name\"");
        Error::new(name.span(), message)
    })?;
    constant.set_span(name.span());
    Ok(constant)
}

/// Columns whose methods would have the same name.
fn check_methods(columns: &[Column], key: &[KeyColumn], mistakes: &mut Mistakes) {
    for (at, column) in columns.iter().enumerate() {
        let name = column.name.unraw().to_string();
        if name == "to_owned" {
            mistakes.say(column.name.span(), "rows have a method `to_owned`; call the column something else");
        }
        let is_updatable = !column.is_immutable && key.iter().all(|part| part.column != at);
        let setter = format!("set_{name}");
        if let Some(other) = columns.iter().find(|other| is_updatable && other.name.unraw() == setter) {
            let message = format!("`{setter}` is the setter of the column `{name}`; call this column something else");
            mistakes.say(other.name.span(), message);
        }
    }
}

/// `OrderLine` as `order_line`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        let follows_small = name[..at].ends_with(|before: char| before.is_lowercase() || before.is_ascii_digit());
        if letter.is_uppercase() && follows_small {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(declared: &str) -> Vec<String> {
        let input = syn::parse_str::<DeriveInput>(declared).expect("a struct");
        match declaration(&input) {
            Ok(_) => vec![],
            Err(error) => error.into_iter().map(|error| error.to_string()).collect(),
        }
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let told = mistakes(
            "#[column(immutable)] #[table(key(a, b, a))] #[table(size = 3)]
            struct T { #[table(immutable)] a: u8, #[column(fixed)] c: u8 }",
        );
        assert_eq!(
            told,
            [
                "unknown table attribute; write key(...), without_key, cluster(...), partition(...), replicated, \
                 name = \"...\", hash, ordered, capacity = N, evolve, check(\"...\"), index(...) or references(...)",
                "`column` stands on a field; on the struct write #[table(...)]",
                "`table` stands on the struct; on a field write #[column(immutable)]",
                "unknown column attribute; write immutable, identity, default = ... or renamed_from = \"...\"",
                "no column `b`; the columns are `a`, `c`",
                "a primary key names `a` twice",
            ]
        );
    }

    #[test]
    fn a_name_is_made_from_the_struct() {
        assert_eq!(snake_case("OrderLine"), "order_line");
        assert_eq!(snake_case("HTTPLog2Row"), "httplog2_row");
        assert_eq!(snake_case("stock"), "stock");
    }

    #[test]
    fn a_sound_declaration_has_no_mistakes() {
        let declared = "#[table(key(a, desc(b)), hash, capacity = 1 << 4, crate = \"x::y\", name = \"t\")]
            #[table(index(name = \"by_b\", columns(b,), unique, nulls_not_distinct, hash), index(name = \"by_c\", \
            columns(desc(c), a)))]
            pub struct T { a: u8, b: u8, #[column(immutable)] c: u8 }";
        assert!(mistakes(declared).is_empty());
    }
}
