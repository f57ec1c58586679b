//! From a declaration to code. The generated code names everything by its full path and relies on no import.
//! Names that it binds begin with two underscores, so that no constant or unit struct beside the row type is
//! meant instead.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::Path;
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use crate::parse::{Checked, Column, Declaration, Index, KeyColumn, OnChange, Partitioning, Reference};

/// Everything the derive makes.
pub(crate) fn table(table: &Declaration) -> TokenStream {
    let (implementation, checks, indexes) = (implementation(table), checks(table), indexes(table));
    let (view, update) = (view(table), update(table));
    quote!(#implementation #checks #indexes #view #update)
}

fn implementation(table: &Declaration) -> TokenStream {
    let Declaration { row, name, catalog, columns, .. } = table;
    let (row_view, row_update) = (format_ident!("{}Row", row.unraw()), format_ident!("{}Update", row.unraw()));
    let (key_type, key_value, definition) = (key_type(&table.key, table), key_value(table), definition(table));
    let specs = columns.iter().map(|column| {
        // Rows of a clustered table are flat.
        let (ty, immutable) = (&column.ty, column.is_immutable && table.cluster == 0);
        quote!(#catalog::ColumnSpec::of::<#ty>(#immutable))
    });
    let places = (0..columns.len()).map(|at| place(table, at));
    // The row id is no field.
    let fields = &columns[..columns.len() - usize::from(table.is_without_key)];
    let encode = fields.iter().zip(places.clone()).map(|(Column { name, ty, .. }, place)| {
        quote!(__row.set::<#ty>(#place, <#ty as #catalog::Column>::lend(&self.#name))?;)
    });
    let decode = fields.iter().zip(places).map(
        |(Column { name, ty, .. }, place)| quote!(#name: <#ty as #catalog::Column>::owned(__row.get::<#ty>(#place)),),
    );
    let evolves = table.evolves;
    let renamed = columns.iter().filter_map(|column| {
        let (name, from) = (column.name.unraw().to_string(), column.renamed_from.as_ref()?);
        Some(quote!((#name, #from)))
    });
    let kind = match columns.iter().find_map(|column| column.identity.as_ref()) {
        _ if table.is_without_key => Some(quote!(RowId)),
        Some(identity) if identity.is_always => Some(quote!(Always)),
        Some(_) => Some(quote!(ByDefault)),
        None => None,
    };
    let kind = kind.map(|kind| {
        quote! {
            const IDENTITY: ::core::option::Option<#catalog::IdentityKind> =
                ::core::option::Option::Some(#catalog::IdentityKind::#kind);
        }
    });
    let numbered = columns.iter().find(|column| column.identity.is_some()).map(|Column { ty, .. }| {
        quote_spanned! {ty.span()=>
            #[automatically_derived]
            impl #catalog::IdentityTable for #row {
                type Identity = #ty;
            }
        }
    });
    let without_key = table.is_without_key.then(|| {
        quote! {
            #[automatically_derived]
            impl #catalog::TableWithoutKey for #row {}
        }
    });
    let ordered = (!table.is_hash).then(|| {
        quote! {
            #[automatically_derived]
            impl #catalog::OrderedTable for #row {}
        }
    });
    quote! {
        #ordered
        #numbered
        #without_key

        // SAFETY: the places are computed from the same columns as the definition. Rows are read and written
        // by the methods below and those of the two row types only, each by its column's place and type.
        #[automatically_derived]
        unsafe impl #catalog::Table for #row {
            const NAME: &'static str = #name;
            const EVOLVES: bool = #evolves;
            const RENAMED: &'static [(&'static str, &'static str)] = &[#(#renamed),*];
            #kind
            const PLACES: &'static [#catalog::ColumnLocation] = &#catalog::place(&[#(#specs),*]);
            type Key = #key_type;
            type Row<'t> = #row_view<'t>;
            type Update<'u> = #row_update<'u>;

            fn definition() -> #catalog::TableDef {
                #definition
            }

            #[inline]
            fn key(&self) -> Self::Key {
                #key_value
            }

            #[inline]
            fn encode(&self, __row: &mut #catalog::RowWriter<'_>) -> ::core::result::Result<(), #catalog::OutOfMemory> {
                #(#encode)*
                ::core::result::Result::Ok(())
            }

            #[inline]
            fn row(__row: #catalog::RowRef<'_>) -> #row_view<'_> {
                #row_view(__row)
            }

            fn decode(__row: #catalog::RowRef<'_>) -> Self {
                #row { #(#decode)* }
            }

            #[inline]
            fn update(__row: #catalog::RowWriter<'_>) -> #row_update<'_> {
                #row_update(__row)
            }

            #[inline]
            fn finish(__update: #row_update<'_>) -> #catalog::ColumnSet {
                __update.0.dirty()
            }
        }
    }
}

/// Checks that need types, made when these are known.
fn checks(table: &Declaration) -> TokenStream {
    let Declaration { catalog, columns, .. } = table;
    let checks = table.key.iter().map(|part| {
        let (ty, name) = (&columns[part.column].ty, &columns[part.column].name);
        let message = format!(
            "column `{name}` of the primary key is optional; key columns always have a value, so write its type \
             without Option"
        );
        quote_spanned! {part.span=>
            const _: () = ::core::assert!(!<<#ty as #catalog::Column>::Stored as #catalog::Stored>::NULLABLE, #message);
        }
    });
    quote!(#(#checks)*)
}

fn indexes(table: &Declaration) -> TokenStream {
    let Declaration { row, catalog, visibility, .. } = table;
    if table.indexes.is_empty() {
        return TokenStream::new();
    }
    let constants = table.indexes.iter().enumerate().map(|(at, index)| {
        let (constant, key, at) = (&index.constant, key_type(&index.parts, table), at as u16);
        let kind = kind(index, catalog);
        let doc = format!("The index `{}`.", index.name.value());
        quote! {
            #[doc = #doc]
            #visibility const #constant: #catalog::IndexSpec<#row, #key, #kind> =
                #catalog::IndexSpec::new(#catalog::IndexId(#at));
        }
    });
    let keys = table.indexes.iter().enumerate().map(|(at, index)| {
        let (key, kind, at) = (key_type(&index.parts, table), kind(index, catalog), at as u16);
        quote! {
            #[automatically_derived]
            impl #catalog::IndexedBy<#at> for #row {
                type Key = #key;
                type Kind = #kind;
            }
        }
    });
    quote! {
        #[automatically_derived]
        #[allow(dead_code)]
        impl #row {
            #(#constants)*
        }
        #(#keys)*
    }
}

/// The type that says which queries an index supports.
fn kind(index: &Index, catalog: &Path) -> TokenStream {
    match (index.is_unique && index.checked == Checked::Immediately, index.is_hash) {
        (false, false) => quote!(#catalog::kind::Ordered),
        (false, true) => quote!(#catalog::kind::Hash),
        (true, false) => quote!(#catalog::kind::UniqueOrdered),
        (true, true) => quote!(#catalog::kind::UniqueHash),
    }
}

/// A reference to a column's place that costs nothing: the constant is promoted.
fn place(table: &Declaration, at: usize) -> TokenStream {
    let Declaration { row, catalog, .. } = table;
    quote!(const { &<#row as #catalog::Table>::PLACES[#at] })
}

/// A getter for each column; its result lives for `lifetime`.
fn getters<'t>(table: &'t Declaration, lifetime: &'t TokenStream) -> impl Iterator<Item = TokenStream> + 't {
    table.columns.iter().enumerate().map(move |(at, column)| {
        let Column { name, visibility, ty, .. } = column;
        let (place, docs, catalog) = (place(table, at), docs(column), &table.catalog);
        quote! {
            #docs
            #[inline]
            #visibility fn #name(&self) -> <#ty as #catalog::Column>::Ref<#lifetime> {
                self.0.get::<#ty>(#place)
            }
        }
    })
}

/// Whether an update may set the column at this position.
fn is_updatable(table: &Declaration, at: usize) -> bool {
    !table.columns[at].is_immutable && table.key.iter().all(|part| part.column != at)
}

/// A constant for each column, but for one that a column or another constant would hide.
fn constants(table: &Declaration) -> impl Iterator<Item = TokenStream> + '_ {
    let Declaration { row, catalog, columns, .. } = table;
    let constant = |column: &Column| format_ident!("{}", column.name.unraw().to_string().to_uppercase());
    columns.iter().enumerate().filter_map(move |(at, column)| {
        let (name, before) = (constant(column), &columns[..at]);
        let is_taken =
            columns.iter().any(|other| other.name == name) || before.iter().any(|other| constant(other) == name);
        let (Column { visibility, ty, .. }, updatable, at) = (column, is_updatable(table, at), at as u16);
        let doc = format!("The column `{}`, to be named where an operation takes columns.", column.name.unraw());
        (!is_taken).then(|| {
            quote! {
                #[doc = #doc]
                #visibility const #name: #catalog::TableColumn<#row, #ty, #updatable> =
                    #catalog::TableColumn::new(#catalog::ColumnId(#at));
            }
        })
    })
}

fn docs(column: &Column) -> TokenStream {
    match &column.docs[..] {
        [] => {
            let doc = format!("The column `{}`.", column.name.unraw());
            quote!(#[doc = #doc])
        }
        docs => quote!(#(#docs)*),
    }
}

fn view(table: &Declaration) -> TokenStream {
    let Declaration { row, catalog, visibility, columns, .. } = table;
    let name = format_ident!("{}Row", row.unraw());
    let doc = format!("A row of [`{row}`] as it was read.");
    let lifetime = quote!('t);
    let getters = getters(table, &lifetime);
    let fields = columns.iter().map(|Column { name, .. }| {
        let text = name.unraw().to_string();
        quote!(.field(#text, &self.#name()))
    });
    let title = row.unraw().to_string();
    let constants = constants(table);
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy)]
        #visibility struct #name<'t>(#catalog::RowRef<'t>);

        #[automatically_derived]
        #[allow(dead_code, clippy::wrong_self_convention)]
        impl<'t> #name<'t> {
            #(#constants)*
            #(#getters)*

            /// The row as a value of its own.
            #visibility fn to_owned(&self) -> #row {
                <#row as #catalog::Table>::decode(self.0)
            }
        }

        #[automatically_derived]
        impl ::core::fmt::Debug for #name<'_> {
            fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                #catalog::watch::unwatched(|| __f.debug_struct(#title)#(#fields)*.finish())
            }
        }
    }
}

fn update(table: &Declaration) -> TokenStream {
    let Declaration { row, catalog, visibility, columns, .. } = table;
    let name = format_ident!("{}Update", row.unraw());
    let doc = format!("A row of [`{row}`] being updated.");
    let lifetime = quote!('_);
    let getters = getters(table, &lifetime);
    let setters = (0..columns.len()).filter(|at| is_updatable(table, *at)).map(|at| {
        let Column { name, visibility, ty, .. } = &columns[at];
        let (setter, place) = (format_ident!("set_{}", name.unraw(), span = name.span()), place(table, at));
        let doc =
            format!("Sets `{}`. For text and bytes of any length: whether there was memory for it.", name.unraw());
        quote! {
            #[doc = #doc]
            #[inline]
            #visibility fn #setter(
                &mut self,
                __value: <#ty as #catalog::Column>::Set<'_>,
            ) -> <<#ty as #catalog::Column>::Stored as #catalog::Stored>::Outcome {
                <<#ty as #catalog::Column>::Stored as #catalog::Stored>::outcome(self.0.set::<#ty>(#place, __value))
            }
        }
    });
    let title = row.unraw().to_string();
    quote! {
        #[doc = #doc]
        #visibility struct #name<'u>(#catalog::RowWriter<'u>);

        #[automatically_derived]
        #[allow(dead_code)]
        impl #name<'_> {
            #(#getters)*
            #(#setters)*
        }

        #[automatically_derived]
        impl ::core::fmt::Debug for #name<'_> {
            fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                __f.debug_struct(#title).field("dirty", &self.0.dirty()).finish_non_exhaustive()
            }
        }
    }
}

fn key_type(parts: &[KeyColumn], table: &Declaration) -> TokenStream {
    let catalog = &table.catalog;
    let mut types = parts.iter().map(|part| {
        let ty = &table.columns[part.column].ty;
        if part.is_descending { quote!(#catalog::Reverse<#ty>) } else { quote!(#ty) }
    });
    match (parts.len(), types.next()) {
        (1, Some(only)) => only,
        (_, first) => quote!((#first, #(#types),*)),
    }
}

fn key_value(table: &Declaration) -> TokenStream {
    let catalog = &table.catalog;
    if table.is_without_key {
        // A row has none before it is appended.
        return quote!(#catalog::RowId(0));
    }
    let mut values = table.key.iter().map(|part| {
        let field = &table.columns[part.column].name;
        let value = quote!(::core::clone::Clone::clone(&self.#field));
        if part.is_descending { quote!(#catalog::Reverse(#value)) } else { value }
    });
    match (table.key.len(), values.next()) {
        (1, Some(only)) => only,
        (_, first) => quote!((#first, #(#values),*)),
    }
}

fn definition(table: &Declaration) -> TokenStream {
    let Declaration { name, catalog, columns, .. } = table;
    let column_defs = columns.iter().map(|column| {
        let (ty, immutable) = (&column.ty, column.is_immutable);
        let text = column.name.unraw().to_string();
        let default = match &column.default {
            Some(default) => quote!(::core::option::Option::Some(::std::borrow::Cow::Borrowed(#default))),
            None => quote!(::core::option::Option::None),
        };
        let identity = match &column.identity {
            _ if table.is_without_key && text == "row_id" => {
                quote!(::core::option::Option::Some(#catalog::Identity::of(#catalog::IdentityKind::RowId)))
            }
            None => quote!(::core::option::Option::None),
            Some(identity) => {
                let make = if identity.is_always { quote!(always) } else { quote!(by_default) };
                let of = |name: &str| identity.options.iter().find(|(given, _)| given == name).map(|(_, value)| value);
                let options = ["start", "increment", "minimum", "maximum", "cache"].map(|name| {
                    let (field, value) = (format_ident!("{name}"), of(name));
                    match value {
                        Some(value) => quote!(#field: ::core::option::Option::Some(#value)),
                        None => quote!(#field: ::core::option::Option::None),
                    }
                });
                let cycle = of("cycle").is_some();
                quote! {
                    ::core::option::Option::Some(#catalog::Identity::#make().options(#catalog::SequenceOptions {
                        #(#options,)*
                        cycle: #cycle,
                    }))
                }
            }
        };
        quote! {
            #catalog::ColumnDef {
                name: ::std::borrow::Cow::Borrowed(#text),
                ty: <#ty as #catalog::Column>::TYPE,
                nullable: <<#ty as #catalog::Column>::Stored as #catalog::Stored>::NULLABLE,
                immutable: #immutable,
                default: #default,
                computed_default: ::core::option::Option::None,
                former: ::core::option::Option::None,
                declared: ::core::option::Option::None,
                identity: #identity,
            }
        }
    });
    let parts = |parts: &[KeyColumn]| {
        let each = parts.iter().map(|part| {
            let (column, descending) = (part.column as u16, part.is_descending);
            quote!(#catalog::KeyPart { column: #catalog::ColumnId(#column), descending: #descending })
        });
        quote!(::std::vec![#(#each),*])
    };
    let organization = |is_hash: bool| match is_hash {
        true => quote!(#catalog::Organization::Hash),
        false => quote!(#catalog::Organization::Ordered),
    };
    let indexes = table.indexes.iter().map(|index| {
        let (name, unique, nulls_not_distinct) = (&index.name, index.is_unique, index.nulls_not_distinct);
        let (parts, organization) = (parts(&index.parts), organization(index.is_hash));
        let checked = checked(index.checked);
        quote! {
            #catalog::IndexDef {
                name: ::std::borrow::Cow::Borrowed(#name),
                parts: #parts,
                unique: #unique,
                nulls_not_distinct: #nulls_not_distinct,
                checked: #catalog::Checked::#checked,
                organization: #organization,
            }
        }
    });
    let references = table.references.iter().map(|found| reference(found, catalog));
    let (key, organization) = (parts(&table.key), organization(table.is_hash));
    let cluster = table.cluster;
    let partitioning = match table.partitioning {
        Partitioning::KeyColumn(at) => quote!(KeyColumn(#at)),
        Partitioning::Replicated => quote!(Replicated),
    };
    let capacity = table.capacity.as_ref().map_or(quote!(0), |capacity| quote!(#capacity));
    let checks = table.checks.iter().map(|(name, expression)| {
        let name = match name {
            Some(name) => quote!(::std::option::Option::Some(::std::borrow::Cow::Borrowed(#name))),
            None => quote!(::std::option::Option::None),
        };
        quote!((#name, ::std::borrow::Cow::Borrowed(#expression)))
    });
    let with_checks = if table.checks.is_empty() { quote!() } else { quote!(.with_checks([#(#checks),*])) };
    quote! {
        #catalog::TableDef {
            name: ::std::borrow::Cow::Borrowed(#name),
            columns: ::std::vec![#(#column_defs),*],
            key: #key,
            key_name: ::core::option::Option::None,
            organization: #organization,
            indexes: ::std::vec![#(#indexes),*],
            references: ::std::vec![#(#references),*],
            checks: ::std::vec![],
            capacity: #capacity,
            cluster: #cluster,
            partitioning: #catalog::Partitioning::#partitioning,
            extension: 0,
        }
        #with_checks
    }
}

fn checked(checked: Checked) -> TokenStream {
    match checked {
        Checked::Immediately => quote!(Immediately),
        Checked::Deferrable => quote!(Deferrable),
        Checked::Deferred => quote!(Deferred),
    }
}

fn reference(found: &Reference, catalog: &Path) -> TokenStream {
    let Reference { name, columns, table, referenced, .. } = found;
    let on_change = |action: OnChange| match action {
        OnChange::NoAction => quote!(NoAction),
        OnChange::Restrict => quote!(Restrict),
        OnChange::Cascade => quote!(Cascade),
        OnChange::SetNull => quote!(SetNull),
        OnChange::SetDefault => quote!(SetDefault),
    };
    let (on_delete, on_update) = (on_change(found.on_delete), on_change(found.on_update));
    let checked = checked(found.checked);
    quote! {
        #catalog::ReferenceDef {
            name: ::std::borrow::Cow::Borrowed(#name),
            columns: ::std::vec![#(::std::borrow::Cow::Borrowed(#columns)),*],
            table: ::std::borrow::Cow::Borrowed(#table),
            referenced: ::std::vec![#(::std::borrow::Cow::Borrowed(#referenced)),*],
            on_delete: #catalog::OnChange::#on_delete,
            on_update: #catalog::OnChange::#on_update,
            checked: #catalog::Checked::#checked,
        }
    }
}
