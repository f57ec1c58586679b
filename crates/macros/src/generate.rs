//! From a declaration to code.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::parse::{Declaration, Part};

pub(crate) fn table(table: &Declaration) -> TokenStream {
    let Declaration { row, name, catalog, columns, .. } = table;
    let (places, view, update) = (places(table), view(table), update(table));
    let (row_view, row_update) = (format_ident!("{row}Row"), format_ident!("{row}Update"));
    let key_type = key_type(&table.key, table);
    let key_value = key_value(&table.key, table);
    let definition = definition(table);
    let indexes = table.indexes.iter().enumerate().map(|(at, index)| {
        let constant = format_ident!("{}", index.name.value().to_uppercase(), span = index.name.span());
        let key = key_type_of(&index.parts, table);
        let doc = format!("The index `{}`.", index.name.value());
        let (at, visibility) = (at as u16, &table.visibility);
        quote! {
            #[doc = #doc]
            #visibility const #constant: #catalog::IndexSpec<#row, #key> =
                #catalog::IndexSpec::new(#catalog::IndexId(#at));
        }
    });
    let index_constants = if table.indexes.is_empty() { quote!() } else { quote!(impl #row { #(#indexes)* }) };
    let encode = columns.iter().enumerate().map(|(at, column)| {
        let (field, ty) = (&column.name, &column.ty);
        quote!(row.set::<#ty>(&PLACES[#at], <#ty as #catalog::Column>::lend(&self.#field))?;)
    });
    let decode = columns.iter().enumerate().map(|(at, column)| {
        let (field, ty) = (&column.name, &column.ty);
        quote!(#field: <#ty as #catalog::Column>::owned(row.get::<#ty>(&PLACES[#at])),)
    });
    quote! {
        const _: () = {
            #places

            #[automatically_derived]
            impl #catalog::Table for #row {
                const NAME: &'static str = #name;
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
                fn encode(
                    &self,
                    row: &mut #catalog::RowWriter<'_>,
                ) -> ::core::result::Result<(), #catalog::OutOfMemory> {
                    #(#encode)*
                    ::core::result::Result::Ok(())
                }

                #[inline]
                fn row(row: #catalog::RowRef<'_>) -> #row_view<'_> {
                    #row_view(row)
                }

                fn decode(row: #catalog::RowRef<'_>) -> Self {
                    #row { #(#decode)* }
                }

                #[inline]
                fn update(row: #catalog::RowWriter<'_>) -> #row_update<'_> {
                    #row_update(row)
                }

                #[inline]
                fn finish(update: #row_update<'_>) -> #catalog::ColumnSet {
                    update.0.dirty()
                }
            }

            #index_constants
        };

        #view
        #update
    }
}

/// The constant array of places, computed by the catalog.
fn places(table: &Declaration) -> TokenStream {
    let Declaration { catalog, columns, .. } = table;
    let count = columns.len();
    let specs = columns.iter().map(|column| {
        let (ty, immutable) = (&column.ty, column.is_immutable);
        quote!(#catalog::ColumnSpec::of::<#ty>(#immutable))
    });
    quote! {
        static PLACES: [#catalog::Place; #count] = const { #catalog::place(&[#(#specs),*]) };
    }
}

/// A place as a constant of its own, for accessors outside the block that holds the array.
fn place(table: &Declaration, at: usize) -> TokenStream {
    let Declaration { catalog, columns, .. } = table;
    let specs = columns.iter().map(|column| {
        let (ty, immutable) = (&column.ty, column.is_immutable);
        quote!(#catalog::ColumnSpec::of::<#ty>(#immutable))
    });
    quote!(const { &#catalog::place(&[#(#specs),*])[#at] })
}

fn view(table: &Declaration) -> TokenStream {
    let Declaration { row, catalog, visibility, columns, .. } = table;
    let name = format_ident!("{row}Row");
    let doc = format!("A row of [`{row}`] as it was read.");
    let getters = columns.iter().enumerate().map(|(at, column)| {
        let (field, ty, docs, visibility) = (&column.name, &column.ty, &column.docs, &column.visibility);
        let place = place(table, at);
        quote! {
            #(#docs)*
            #[inline]
            #visibility fn #field(&self) -> <#ty as #catalog::Column>::Ref<'t> {
                self.0.get::<#ty>(#place)
            }
        }
    });
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy)]
        #visibility struct #name<'t>(#catalog::RowRef<'t>);

        #[allow(dead_code, missing_docs)]
        impl<'t> #name<'t> {
            #(#getters)*

            /// The row as a value of its own.
            #visibility fn to_owned(&self) -> #row {
                <#row as #catalog::Table>::decode(self.0)
            }
        }

        impl ::core::fmt::Debug for #name<'_> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(stringify!(#row)).finish_non_exhaustive()
            }
        }
    }
}

fn update(table: &Declaration) -> TokenStream {
    let Declaration { row, catalog, visibility, columns, .. } = table;
    let name = format_ident!("{row}Update");
    let doc = format!("A row of [`{row}`] being updated.");
    let getters = columns.iter().enumerate().map(|(at, column)| {
        let (field, ty, docs, visibility) = (&column.name, &column.ty, &column.docs, &column.visibility);
        let place = place(table, at);
        quote! {
            #(#docs)*
            #[inline]
            #visibility fn #field(&self) -> <#ty as #catalog::Column>::Ref<'_> {
                self.0.get::<#ty>(#place)
            }
        }
    });
    let updatable = |at: &usize| !columns[*at].is_immutable && table.key.iter().all(|part| part.column != *at);
    let setters = (0..columns.len()).filter(updatable).map(|at| {
        let (field, ty, visibility) = (&columns[at].name, &columns[at].ty, &columns[at].visibility);
        let (setter, place) = (format_ident!("set_{field}"), place(table, at));
        let doc = format!("Sets `{field}`.");
        if is_long_text(ty) {
            quote! {
                #[doc = #doc]
                ///
                /// # Errors
                /// At the memory limit.
                #[inline]
                #visibility fn #setter(
                    &mut self,
                    value: <#ty as #catalog::Column>::Set<'_>,
                ) -> ::core::result::Result<(), #catalog::OutOfMemory> {
                    self.0.set::<#ty>(#place, value)
                }
            }
        } else {
            quote! {
                #[doc = #doc]
                #[inline]
                #visibility fn #setter(&mut self, value: <#ty as #catalog::Column>::Set<'_>) {
                    // Only long text can fail.
                    let _ = self.0.set::<#ty>(#place, value);
                }
            }
        }
    });
    quote! {
        #[doc = #doc]
        #visibility struct #name<'u>(#catalog::RowWriter<'u>);

        #[allow(dead_code, missing_docs)]
        impl #name<'_> {
            #(#getters)*
            #(#setters)*
        }

        impl ::core::fmt::Debug for #name<'_> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                self.0.fmt(f)
            }
        }
    }
}

/// Whether a type is `String` or `Option<String>`, by its last path segment: the macro sees tokens, not types.
fn is_long_text(ty: &syn::Type) -> bool {
    let syn::Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    match &last.arguments {
        _ if last.ident == "String" => true,
        syn::PathArguments::AngleBracketed(arguments) if last.ident == "Option" => arguments
            .args
            .iter()
            .any(|argument| matches!(argument, syn::GenericArgument::Type(inner) if is_long_text(inner))),
        _ => false,
    }
}

fn key_type_of(parts: &[Part], table: &Declaration) -> TokenStream {
    let catalog = &table.catalog;
    let types = parts.iter().map(|part| {
        let ty = &table.columns[part.column].ty;
        if part.is_descending { quote!(#catalog::Reverse<#ty>) } else { quote!(#ty) }
    });
    match parts.len() {
        1 => quote!(#(#types)*),
        _ => quote!((#(#types),*)),
    }
}

fn key_type(parts: &[Part], table: &Declaration) -> TokenStream {
    key_type_of(parts, table)
}

fn key_value(parts: &[Part], table: &Declaration) -> TokenStream {
    let catalog = &table.catalog;
    let values = parts.iter().map(|part| {
        let field = &table.columns[part.column].name;
        let value = quote!(::core::clone::Clone::clone(&self.#field));
        if part.is_descending { quote!(#catalog::Reverse(#value)) } else { value }
    });
    match parts.len() {
        1 => quote!(#(#values)*),
        _ => quote!((#(#values),*)),
    }
}

fn definition(table: &Declaration) -> TokenStream {
    let Declaration { name, catalog, columns, .. } = table;
    let column_defs = columns.iter().map(|column| {
        let (ty, immutable) = (&column.ty, column.is_immutable);
        let text = unraw(&column.name);
        quote! {
            #catalog::ColumnDef {
                name: ::std::borrow::Cow::Borrowed(#text),
                ty: <#ty as #catalog::Column>::TYPE,
                nullable: <#ty as #catalog::Column>::NULLABLE,
                immutable: #immutable,
            }
        }
    });
    let parts = |parts: &[Part]| {
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
        let (name, unique) = (&index.name, index.is_unique);
        let (parts, organization) = (parts(&index.parts), organization(index.is_hash));
        quote! {
            #catalog::IndexDef {
                name: ::std::borrow::Cow::Borrowed(#name),
                parts: #parts,
                unique: #unique,
                organization: #organization,
            }
        }
    });
    let (key, organization) = (parts(&table.key), organization(table.is_hash));
    let capacity = table.capacity.as_ref().map_or(quote!(0), |capacity| quote!(#capacity));
    quote! {
        #catalog::TableDef {
            name: ::std::borrow::Cow::Borrowed(#name),
            columns: ::std::vec![#(#column_defs),*],
            key: #key,
            organization: #organization,
            indexes: ::std::vec![#(#indexes),*],
            capacity: #capacity,
        }
    }
}

fn unraw(name: &syn::Ident) -> String {
    use syn::ext::IdentExt;
    name.unraw().to_string()
}
