//! From the derive's input to a declaration; every mistake is reported at its token, with what to write instead.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Path, Result, Token, Type, Visibility, parenthesized};

/// A table as declared.
pub(crate) struct Declaration {
    pub(crate) row: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) key: Vec<Part>,
    pub(crate) is_hash: bool,
    pub(crate) capacity: Option<Expr>,
    pub(crate) indexes: Vec<Index>,
    /// Where the catalog is found.
    pub(crate) catalog: Path,
}

pub(crate) struct Column {
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) ty: Type,
    pub(crate) is_immutable: bool,
    pub(crate) docs: Vec<syn::Attribute>,
}

/// A column of a key, by position.
pub(crate) struct Part {
    pub(crate) column: usize,
    pub(crate) is_descending: bool,
}

pub(crate) struct Index {
    pub(crate) name: LitStr,
    pub(crate) parts: Vec<Part>,
    pub(crate) is_unique: bool,
    pub(crate) is_hash: bool,
}

/// `column` or `desc(column)`, before columns are looked up.
struct NamedPart {
    name: Ident,
    is_descending: bool,
}

impl Parse for NamedPart {
    fn parse(input: ParseStream<'_>) -> Result<NamedPart> {
        let name = input.call(Ident::parse_any)?;
        if name == "desc" && input.peek(syn::token::Paren) {
            let inner;
            parenthesized!(inner in input);
            return Ok(NamedPart { name: inner.call(Ident::parse_any)?, is_descending: true });
        }
        Ok(NamedPart { name, is_descending: false })
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
    key: Option<Vec<NamedPart>>,
    is_hash: bool,
    capacity: Option<Expr>,
    indexes: Vec<NamedIndex>,
    catalog: Option<Path>,
}

struct NamedIndex {
    name: LitStr,
    parts: Vec<NamedPart>,
    is_unique: bool,
    is_hash: bool,
}

impl Attributes {
    fn read(&mut self, attribute: &syn::Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                self.name = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("key") {
                self.key = Some(named_parts(meta.input)?);
            } else if meta.path.is_ident("hash") {
                self.is_hash = true;
            } else if meta.path.is_ident("ordered") {
                self.is_hash = false;
            } else if meta.path.is_ident("capacity") {
                self.capacity = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("crate") {
                self.catalog = Some(meta.value()?.call(Path::parse_mod_style)?);
            } else if meta.path.is_ident("index") {
                let inner;
                parenthesized!(inner in meta.input);
                self.indexes.push(index(&inner, meta.path.span())?);
            } else {
                return Err(meta.error(
                    "unknown table attribute; write name = \"...\", key(...), hash, ordered, capacity = N or index(...)",
                ));
            }
            Ok(())
        })
    }
}

fn index(input: ParseStream<'_>, span: proc_macro2::Span) -> Result<NamedIndex> {
    let (mut name, mut parts, mut is_unique, mut is_hash) = (None, None, false, false);
    while !input.is_empty() {
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "name" => {
                input.parse::<Token![=]>()?;
                name = Some(input.parse::<LitStr>()?);
            }
            "columns" => parts = Some(named_parts(input)?),
            "unique" => is_unique = true,
            "hash" => is_hash = true,
            "ordered" => is_hash = false,
            _ => {
                let known = "name = \"...\", columns(...), unique, hash or ordered";
                return Err(Error::new(word.span(), format!("unknown index attribute; write {known}")));
            }
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    let name = name.ok_or_else(|| Error::new(span, "an index needs a name: write name = \"by_...\""))?;
    let parts = parts.ok_or_else(|| Error::new(span, "an index needs columns: write columns(...)"))?;
    Ok(NamedIndex { name, parts, is_unique, is_hash })
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
        return Err(Error::new(parameter.span(), "a table's struct has no generic parameters: its columns have fixed types"));
    }
    let mut attributes = Attributes::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("table")) {
        attributes.read(attribute)?;
    }
    let columns = fields.named.iter().map(column).collect::<Result<Vec<_>>>()?;
    let Some(key) = attributes.key else {
        let example = columns.first().map_or("id".to_owned(), |column| column.name.to_string());
        let message = format!("a table needs a primary key: write #[table(key({example}))]");
        return Err(Error::new(input.ident.span(), message));
    };
    let key = resolve(&key, &columns)?;
    if key.is_empty() {
        return Err(Error::new(input.ident.span(), "a primary key has at least one column"));
    }
    let mut indexes = Vec::new();
    for index in attributes.indexes {
        let parts = resolve(&index.parts, &columns)?;
        if parts.is_empty() {
            return Err(Error::new(index.name.span(), "an index has at least one column"));
        }
        indexes.push(Index { name: index.name, parts, is_unique: index.is_unique, is_hash: index.is_hash });
    }
    let catalog = attributes.catalog.unwrap_or_else(|| syn::parse_quote!(::seriatim::catalog));
    Ok(Declaration {
        row: input.ident.clone(),
        visibility: input.vis.clone(),
        name: attributes.name.map_or_else(|| input.ident.to_string().to_lowercase(), |name| name.value()),
        columns,
        key,
        is_hash: attributes.is_hash,
        capacity: attributes.capacity,
        indexes,
        catalog,
    })
}

fn column(field: &syn::Field) -> Result<Column> {
    let Some(name) = field.ident.clone() else {
        return Err(Error::new(field.span(), "a column needs a name"));
    };
    let mut is_immutable = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("column")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("immutable") {
                is_immutable = true;
                return Ok(());
            }
            Err(meta.error("unknown column attribute; write immutable"))
        })?;
    }
    let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    Ok(Column { name, visibility: field.vis.clone(), ty: field.ty.clone(), is_immutable, docs })
}

fn resolve(parts: &[NamedPart], columns: &[Column]) -> Result<Vec<Part>> {
    let find = |part: &NamedPart| {
        let column = columns.iter().position(|column| column.name == part.name).ok_or_else(|| {
            let names: Vec<String> = columns.iter().map(|column| column.name.to_string()).collect();
            let message = format!("no column `{}`; the columns are {}", part.name, names.join(", "));
            Error::new(part.name.span(), message)
        })?;
        Ok(Part { column, is_descending: part.is_descending })
    };
    parts.iter().map(find).collect()
}
