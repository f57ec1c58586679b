//! Ids of several kinds, each with a type of its own.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            /// The id as an index into a dense array.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A table of a database. A secondary index is a table too, with its own id.
    TableId(u32)
}
id! {
    /// A column of a table, in order of declaration.
    ColumnId(u16)
}
id! {
    /// A secondary index of a table, in order of declaration.
    IndexId(u16)
}
id! {
    /// A worker of a database: the state of one open transaction.
    WorkerId(u16)
}
id! {
    /// A version of a table's columns, which determines the encoding of rows on disk.
    LayoutId(u32)
}
