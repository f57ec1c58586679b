//! The tables of the catalogue. Those about what there is not have no rows.

use seriatim::catalog::expression::Datum;
use seriatim::catalog::{
    Checked, ColumnDef, ColumnType, Grantee, IdentityKind, Object, OnChange, Privileges, RoleDef, TableDef,
};

use super::functions::{self, text};
use super::schema::{
    CATALOG_OID, Constraint, DATABASE_OID, INFORMATION_OID, Index, Kind, ROLE_OID, Relation, SCHEMA_OID, Schema,
    referenced,
};
use super::{Column, INFORMATION, Record, Table};
use crate::expression::sequence_of_default;
use crate::names::{CATALOG, SCHEMA};
use crate::rows::{Owned, is_row_id};
use crate::types::SqlType;

const fn table(name: &'static str, columns: &'static str, rows: fn(&Schema) -> Vec<Record>) -> Table {
    Table { schema: CATALOG, name, columns, rows }
}

const fn empty(name: &'static str, columns: &'static str) -> Table {
    table(name, columns, |_| Vec::new())
}

const fn view(name: &'static str, columns: &'static str, rows: fn(&Schema) -> Vec<Record>) -> Table {
    Table { schema: INFORMATION, name, columns, rows }
}

/// All tables.
pub(super) const TABLES: &[Table] = &[
    table(
        "pg_class",
        "oid oid, relname name, relnamespace oid, reltype oid, reloftype oid, relowner oid, relam oid, \
         relfilenode oid, reltablespace oid, relpages int4, reltuples float4, relallvisible int4, reltoastrelid oid, \
         relhasindex bool, relisshared bool, relpersistence char, relkind char, relnatts int2, relchecks int2, \
         relhasrules bool, relhastriggers bool, relhassubclass bool, relrowsecurity bool, relforcerowsecurity bool, \
         relispopulated bool, relreplident char, relispartition bool, relrewrite oid, relacl aclitem[], reloptions \
         text[], relpartbound pg_node_tree",
        classes,
    ),
    table("pg_namespace", "oid oid, nspname name, nspowner oid, nspacl aclitem[]", |_| {
        let row =
            |(oid, name): (u32, &str)| record([("oid", id(oid)), ("nspname", text(name)), ("nspowner", id(ROLE_OID))]);
        [(CATALOG_OID, CATALOG), (SCHEMA_OID, SCHEMA), (INFORMATION_OID, INFORMATION)].map(row).into()
    }),
    table(
        "pg_attribute",
        "attrelid oid, attname name, atttypid oid, attstattarget int4, attlen int2, attnum int2, attndims int4, \
         attcacheoff int4, atttypmod int4, attbyval bool, attalign char, attstorage char, attcompression char, \
         attnotnull bool, atthasdef bool, atthasmissing bool, attidentity char, attgenerated char, attisdropped bool, \
         attislocal bool, attinhcount int4, attcollation oid, attacl aclitem[], attoptions text[], \
         attfdwoptions text[]",
        attributes,
    ),
    table("pg_attrdef", "oid oid, adrelid oid, adnum int2, adbin pg_node_tree", |schema| {
        let of = |table: &Relation| {
            let oid = table.oid;
            let row = move |(at, column): (usize, &ColumnDef)| {
                let default = default_of(column)?;
                // The number of a default is that of its table and column, apart from all others.
                let own = 0x8000_0000 | (oid / 2 + at as u32);
                Some(record([
                    ("oid", id(own)),
                    ("adrelid", id(oid)),
                    ("adnum", number(at + 1)),
                    ("adbin", text(default)),
                ]))
            };
            table.definition().columns.iter().enumerate().filter_map(row).collect::<Vec<_>>()
        };
        schema.tables.iter().flat_map(of).collect()
    }),
    table(
        "pg_index",
        "indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool, indnullsnotdistinct bool, \
         indisprimary bool, indisexclusion bool, indimmediate bool, indisclustered bool, indisvalid bool, \
         indcheckxmin bool, indisready bool, indislive bool, indisreplident bool, indkey int2vector, \
         indcollation oidvector, indclass oidvector, indoption int2vector, indexprs pg_node_tree, indpred pg_node_tree",
        indexes,
    ),
    table(
        "pg_constraint",
        "oid oid, conname name, connamespace oid, contype char, condeferrable bool, condeferred bool, \
         convalidated bool, conrelid oid, contypid oid, conindid oid, conparentid oid, confrelid oid, \
         confupdtype char, confdeltype char, confmatchtype char, conislocal bool, coninhcount int4, connoinherit \
         bool, conkey int2[], confkey int2[], conpfeqop oid[], conppeqop oid[], conffeqop oid[], confdelsetcols \
         int2[], conexclop oid[], conbin pg_node_tree",
        constraints,
    ),
    table(
        "pg_type",
        "oid oid, typname name, typnamespace oid, typowner oid, typlen int2, typbyval bool, typtype char, \
         typcategory char, typispreferred bool, typisdefined bool, typdelim char, typrelid oid, typsubscript regproc, \
         typelem oid, typarray oid, typinput regproc, typoutput regproc, typreceive regproc, typsend regproc, \
         typmodin regproc, typmodout regproc, typanalyze regproc, typalign char, typstorage char, typnotnull bool, \
         typbasetype oid, typtypmod int4, typndims int4, typcollation oid, typdefaultbin pg_node_tree, \
         typdefault text, typacl aclitem[]",
        types,
    ),
    table(
        "pg_database",
        "oid oid, datname name, datdba oid, encoding int4, datlocprovider char, datistemplate bool, \
         datallowconn bool, datconnlimit int4, datfrozenxid int4, datminmxid int4, dattablespace oid, datcollate text, \
         datctype text, daticulocale text, datcollversion text, datacl aclitem[]",
        |_| {
            let row = [("oid", id(DATABASE_OID)), ("datname", text("postgres")), ("datdba", id(ROLE_OID))];
            let more = [
                ("encoding", Datum::Integer(6)),
                ("datlocprovider", text("c")),
                ("datallowconn", truth(true)),
                ("datconnlimit", Datum::Integer(-1)),
                ("dattablespace", Datum::Integer(1663)),
                ("datcollate", text("C")),
                ("datctype", text("C")),
            ];
            vec![row.into_iter().chain(more).collect()]
        },
    ),
    table(
        "pg_roles",
        "rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, rolcanlogin bool, \
         rolreplication bool, rolconnlimit int4, rolpassword text, rolvaliduntil timestamptz, rolbypassrls bool, \
         rolconfig text[], oid oid",
        roles,
    ),
    table(
        "pg_authid",
        "oid oid, rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, \
         rolcanlogin bool, rolreplication bool, rolbypassrls bool, rolconnlimit int4, rolpassword text, \
         rolvaliduntil timestamptz",
        roles,
    ),
    table(
        "pg_user",
        "usename name, usesysid oid, usecreatedb bool, usesuper bool, userepl bool, usebypassrls bool, passwd text, \
         valuntil timestamptz, useconfig text[]",
        |schema| {
            let row = |(oid, role): (u32, &RoleDef)| {
                record([
                    ("usename", text(&*role.name)),
                    ("usesysid", id(oid)),
                    ("usecreatedb", truth(role.create_database || role.superuser)),
                    ("usesuper", truth(role.superuser)),
                    ("userepl", truth(role.superuser)),
                    ("usebypassrls", truth(role.superuser)),
                    ("passwd", text("********")),
                ])
            };
            schema.access.roles().filter(|(_, role)| role.login).map(row).collect()
        },
    ),
    table("pg_auth_members", "roleid oid, member oid, grantor oid, admin_option bool", |schema| {
        let row =
            |of: u32, member: u32| record([("roleid", id(of)), ("member", id(member)), ("grantor", id(ROLE_OID))]);
        let rows =
            |(member, role): (u32, &RoleDef)| role.member_of.iter().map(|of| row(*of, member)).collect::<Vec<_>>();
        schema.access.roles().flat_map(rows).collect()
    }),
    table("pg_am", "oid oid, amname name, amhandler regproc, amtype char", |_| {
        let row = |(oid, name, kind): (u32, &str, &str)| {
            record([("oid", id(oid)), ("amname", text(name)), ("amtype", text(kind))])
        };
        [(HEAP, "heap", "t"), (BTREE, "btree", "i"), (HASH, "hash", "i")].map(row).into()
    }),
    table(
        "pg_proc",
        "oid oid, proname name, pronamespace oid, proowner oid, prolang oid, procost float4, prorows float4, \
         provariadic oid, prosupport regproc, prokind char, prosecdef bool, proleakproof bool, proisstrict bool, \
         proretset bool, provolatile char, proparallel char, pronargs int2, pronargdefaults int2, prorettype oid, \
         proargtypes oidvector, proallargtypes oid[], proargmodes char[], proargnames text[], \
         proargdefaults pg_node_tree, protrftypes oid[], prosrc text, probin text, prosqlbody pg_node_tree, \
         proconfig text[], proacl aclitem[]",
        |_| {
            let row = |(at, name): (usize, &'static str)| {
                record([
                    ("oid", number(functions::PROCEDURES_FROM + at)),
                    ("proname", text(name)),
                    ("pronamespace", id(CATALOG_OID)),
                    ("proowner", id(ROLE_OID)),
                    ("prokind", text("f")),
                    ("provolatile", text("s")),
                ])
            };
            functions::names().enumerate().map(row).collect()
        },
    ),
    table(
        "pg_collation",
        "oid oid, collname name, collnamespace oid, collowner oid, collprovider char, collisdeterministic bool, \
         collencoding int4, collcollate text, collctype text, colliculocale text, collversion text",
        |_| {
            let row = |(oid, name): (u32, &str)| {
                let own = [("oid", id(oid)), ("collname", text(name)), ("collnamespace", id(CATALOG_OID))];
                let more = [
                    ("collowner", id(ROLE_OID)),
                    ("collprovider", text(if name == "default" { "d" } else { "c" })),
                    ("collisdeterministic", truth(true)),
                    ("collencoding", Datum::Integer(-1)),
                ];
                own.into_iter().chain(more).collect()
            };
            [(COLLATION, "default"), (950, "C"), (951, "POSIX")].map(row).into()
        },
    ),
    table("pg_tablespace", "oid oid, spcname name, spcowner oid, spcacl aclitem[], spcoptions text[]", |_| {
        vec![record([("oid", Datum::Integer(1663)), ("spcname", text("pg_default")), ("spcowner", id(ROLE_OID))])]
    }),
    table(
        "pg_sequence",
        "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin int8, seqcache int8, \
         seqcycle bool",
        |schema| {
            let row = |numbers: &super::schema::Numbers| {
                let definition = &numbers.definition;
                let (low, high) = definition.range();
                let own = [
                    ("seqrelid", id(numbers.oid)),
                    ("seqtypid", id(SqlType::of_stored(definition.ty).oid())),
                    ("seqstart", Datum::Integer(definition.first().into())),
                    ("seqincrement", Datum::Integer(definition.step().into())),
                ];
                let more = [
                    ("seqmax", Datum::Integer(high.into())),
                    ("seqmin", Datum::Integer(low.into())),
                    ("seqcache", Datum::Integer(1)),
                    ("seqcycle", truth(definition.options.cycle)),
                ];
                own.into_iter().chain(more).collect()
            };
            schema.sequences.iter().map(row).collect()
        },
    ),
    table(
        "pg_sequences",
        "schemaname name, sequencename name, sequenceowner name, data_type text, start_value int8, min_value int8, \
         max_value int8, increment_by int8, cycle bool, cache_size int8, last_value int8",
        |schema| {
            let row = |numbers: &super::schema::Numbers| {
                let definition = &numbers.definition;
                let (low, high) = definition.range();
                let own = [
                    ("schemaname", text(SCHEMA)),
                    ("sequencename", text(&*definition.name)),
                    ("sequenceowner", text(schema.role(schema.owner(numbers.oid)).unwrap_or_default())),
                    ("data_type", text(SqlType::of_stored(definition.ty).to_string())),
                    ("start_value", Datum::Integer(definition.first().into())),
                    ("increment_by", Datum::Integer(definition.step().into())),
                ];
                let more = [
                    ("max_value", Datum::Integer(high.into())),
                    ("min_value", Datum::Integer(low.into())),
                    ("cache_size", Datum::Integer(1)),
                    ("cycle", truth(definition.options.cycle)),
                    ("last_value", numbers.last.map_or(Datum::Null, |last| Datum::Integer(last.into()))),
                ];
                own.into_iter().chain(more).collect()
            };
            schema.sequences.iter().map(row).collect()
        },
    ),
    table(
        "pg_tables",
        "schemaname name, tablename name, tableowner name, tablespace name, hasindexes bool, hasrules bool, \
         hastriggers bool, rowsecurity bool",
        |schema| {
            let row = |table: &Relation| {
                record([
                    ("schemaname", text(SCHEMA)),
                    ("tablename", text(&*table.definition().name)),
                    ("tableowner", text(schema.role(schema.owner(table.oid)).unwrap_or_default())),
                    ("hasindexes", truth(!table.indexes.is_empty())),
                ])
            };
            schema.tables.iter().map(row).collect()
        },
    ),
    table("pg_indexes", "schemaname name, tablename name, indexname name, tablespace name, indexdef text", |schema| {
        let row = |(table, index): (&Relation, &Index)| {
            record([
                ("schemaname", text(SCHEMA)),
                ("tablename", text(&*table.definition().name)),
                ("indexname", text(&*index.name)),
                ("indexdef", text(index.sql(table, false))),
            ])
        };
        all_indexes(schema).map(row).collect()
    }),
    table(
        "pg_settings",
        "name text, setting text, unit text, category text, short_desc text, extra_desc text, context text, \
         vartype text, source text, min_val text, max_val text, enumvals text[], boot_val text, reset_val text, \
         sourcefile text, sourceline int4, pending_restart bool",
        |_| {
            let row = |(name, value): (&str, &str)| {
                let all = ["setting", "boot_val", "reset_val"].map(|column| (column, text(value)));
                let own = [("name", text(name)), ("context", text("user")), ("vartype", text("string"))];
                own.into_iter().chain(all).chain([("source", text("default"))]).collect()
            };
            let most = TableDef::KEY_PARTS_MAX.to_string();
            let own = [row(("max_index_keys", &most))];
            crate::session::defaults().map(row).chain(own).collect()
        },
    ),
    empty("pg_description", "objoid oid, classoid oid, objsubid int4, description text"),
    empty("pg_shdescription", "objoid oid, classoid oid, description text"),
    empty(
        "pg_depend",
        "classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid int4, deptype char",
    ),
    empty("pg_inherits", "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool"),
    empty(
        "pg_partitioned_table",
        "partrelid oid, partstrat char, partnatts int2, partdefid oid, partattrs int2vector, partclass oidvector, \
         partcollation oidvector, partexprs pg_node_tree",
    ),
    empty(
        "pg_policy",
        "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool, polroles oid[], polqual pg_node_tree, \
         polwithcheck pg_node_tree",
    ),
    empty(
        "pg_publication",
        "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool, pubupdate bool, pubdelete bool, \
         pubtruncate bool, pubviaroot bool",
    ),
    empty("pg_publication_rel", "oid oid, prpubid oid, prrelid oid, prqual pg_node_tree, prattrs int2vector"),
    empty("pg_publication_namespace", "oid oid, pnpubid oid, pnnspid oid"),
    empty("pg_publication_tables", "pubname name, schemaname name, tablename name, attnames name[], rowfilter text"),
    empty(
        "pg_subscription",
        "oid oid, subdbid oid, subname name, subowner oid, subenabled bool, subconninfo text, subslotname name",
    ),
    empty(
        "pg_statistic_ext",
        "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid, stxstattarget int4, stxkeys int2vector, \
         stxkind char[], stxexprs pg_node_tree",
    ),
    empty(
        "pg_trigger",
        "oid oid, tgrelid oid, tgparentid oid, tgname name, tgfoid oid, tgtype int2, tgenabled char, \
         tgisinternal bool, tgconstrrelid oid, tgconstrindid oid, tgconstraint oid, tgdeferrable bool, \
         tginitdeferred bool, tgnargs int2, tgattr int2vector, tgargs text, tgqual pg_node_tree, tgoldtable name, \
         tgnewtable name",
    ),
    empty("pg_event_trigger", "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid, evtenabled char"),
    empty(
        "pg_rewrite",
        "oid oid, rulename name, ev_class oid, ev_type char, ev_enabled char, is_instead bool, ev_qual pg_node_tree, \
         ev_action pg_node_tree",
    ),
    empty("pg_foreign_table", "ftrelid oid, ftserver oid, ftoptions text[]"),
    empty(
        "pg_foreign_server",
        "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text, srvversion text, srvacl aclitem[], \
         srvoptions text[]",
    ),
    empty(
        "pg_foreign_data_wrapper",
        "oid oid, fdwname name, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwacl aclitem[], fdwoptions text[]",
    ),
    empty(
        "pg_range",
        "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid, rngcanonical regproc, \
         rngsubdiff regproc",
    ),
    empty("pg_enum", "oid oid, enumtypid oid, enumsortorder float4, enumlabel name"),
    empty(
        "pg_extension",
        "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool, extversion text, extconfig oid[], \
         extcondition text[]",
    ),
    empty("pg_language", "oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool"),
    empty("pg_opclass", "oid oid, opcmethod oid, opcname name, opcnamespace oid, opcowner oid, opcdefault bool"),
    empty("pg_views", "schemaname name, viewname name, viewowner name, definition text"),
    empty("pg_matviews", "schemaname name, matviewname name, matviewowner name, definition text"),
    empty("pg_prepared_xacts", "transaction text, gid text, prepared timestamptz, owner name, database name"),
    view(
        "tables",
        "table_catalog name, table_schema name, table_name name, table_type text, self_referencing_column_name name, \
         reference_generation text, user_defined_type_catalog name, user_defined_type_schema name, \
         user_defined_type_name name, is_insertable_into text, is_typed text, commit_action text",
        |schema| {
            let row = |table: &Relation| {
                let own = [
                    ("table_catalog", text("postgres")),
                    ("table_schema", text(SCHEMA)),
                    ("table_name", text(&*table.definition().name)),
                ];
                let more = [("table_type", "BASE TABLE"), ("is_insertable_into", "YES"), ("is_typed", "NO")];
                own.into_iter().chain(more.map(|(column, value)| (column, text(value)))).collect()
            };
            schema.tables.iter().map(row).collect()
        },
    ),
    view(
        "columns",
        "table_catalog name, table_schema name, table_name name, column_name name, ordinal_position int4, \
         column_default text, is_nullable text, data_type text, character_maximum_length int4, \
         character_octet_length int4, numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, \
         datetime_precision int4, udt_catalog name, udt_schema name, udt_name name, is_identity text, \
         identity_generation text, is_generated text, is_updatable text",
        information_columns,
    ),
    view(
        "schemata",
        "catalog_name name, schema_name name, schema_owner name, default_character_set_catalog name, \
         default_character_set_schema name, default_character_set_name name, sql_path text",
        |_| {
            let row = |schema: &str| {
                let owner = ("schema_owner", text("postgres"));
                record([("catalog_name", text("postgres")), ("schema_name", text(schema)), owner])
            };
            [SCHEMA, INFORMATION, CATALOG].map(row).into()
        },
    ),
    view(
        "table_constraints",
        "constraint_catalog name, constraint_schema name, constraint_name name, table_catalog name, table_schema name, \
         table_name name, constraint_type text, is_deferrable text, initially_deferred text, enforced text, \
         nulls_distinct text",
        |schema| {
            let row = |(table, constraint): (&Relation, &Constraint)| {
                let kind = match constraint.kind {
                    Kind::Primary => "PRIMARY KEY",
                    Kind::Unique(_) => "UNIQUE",
                    Kind::Check(_) => "CHECK",
                    Kind::Reference { .. } => "FOREIGN KEY",
                };
                let (deferrable, deferred) = deferrable(constraint);
                let more = [
                    ("table_catalog", text("postgres")),
                    ("table_schema", text(SCHEMA)),
                    ("table_name", text(&*table.definition().name)),
                    ("constraint_type", text(kind)),
                    ("is_deferrable", yes(deferrable)),
                    ("initially_deferred", yes(deferred)),
                    ("enforced", yes(true)),
                ];
                named(constraint).into_iter().chain(more).collect()
            };
            all_constraints(schema).map(row).collect()
        },
    ),
    view(
        "key_column_usage",
        "constraint_catalog name, constraint_schema name, constraint_name name, table_catalog name, table_schema name, \
         table_name name, column_name name, ordinal_position int4, position_in_unique_constraint int4",
        |schema| {
            let rows = |(table, constraint): (&Relation, &Constraint)| {
                let columns = if matches!(constraint.kind, Kind::Check(_)) { &[][..] } else { &constraint.columns };
                let row = |(at, column): (usize, &usize)| {
                    let position = match constraint.kind {
                        Kind::Reference { .. } => number(at + 1),
                        _ => Datum::Null,
                    };
                    let more = [
                        ("table_catalog", text("postgres")),
                        ("table_schema", text(SCHEMA)),
                        ("table_name", text(&*table.definition().name)),
                        ("column_name", text(&*table.definition().columns[column - 1].name)),
                        ("ordinal_position", number(at + 1)),
                        ("position_in_unique_constraint", position),
                    ];
                    named(constraint).into_iter().chain(more).collect()
                };
                columns.iter().enumerate().map(row).collect::<Vec<Record>>()
            };
            all_constraints(schema).flat_map(rows).collect()
        },
    ),
    view(
        "referential_constraints",
        "constraint_catalog name, constraint_schema name, constraint_name name, unique_constraint_catalog name, \
         unique_constraint_schema name, unique_constraint_name name, match_option text, update_rule text, \
         delete_rule text",
        |schema| {
            let row = |(_, constraint): (&Relation, &Constraint)| {
                let Kind::Reference { definition, .. } = &constraint.kind else { return None };
                let key = schema.index(constraint.index).map_or(Datum::Null, |(_, index)| text(&*index.name));
                let more = [
                    ("unique_constraint_catalog", text("postgres")),
                    ("unique_constraint_schema", text(SCHEMA)),
                    ("unique_constraint_name", key),
                    ("match_option", text("NONE")),
                    ("update_rule", text(definition.on_update.sql())),
                    ("delete_rule", text(definition.on_delete.sql())),
                ];
                Some(named(constraint).into_iter().chain(more).collect())
            };
            all_constraints(schema).filter_map(row).collect()
        },
    ),
];

/// The tables of `pg_catalog` that are views in PostgreSQL.
const VIEWS: &[&str] = &[
    "pg_indexes",
    "pg_matviews",
    "pg_prepared_xacts",
    "pg_publication_tables",
    "pg_roles",
    "pg_sequences",
    "pg_settings",
    "pg_tables",
    "pg_user",
    "pg_views",
];

const HEAP: u32 = 2;
const BTREE: u32 = 403;
const HASH: u32 = 405;
/// The collation of all texts.
const COLLATION: u32 = 100;

fn record<const N: usize>(values: [(&'static str, Owned); N]) -> Record {
    values.into()
}

fn id(oid: u32) -> Owned {
    Datum::Integer(oid.into())
}

fn number(of: usize) -> Owned {
    Datum::Integer(of as i128)
}

fn truth(of: bool) -> Owned {
    Datum::Bool(of)
}

fn yes(of: bool) -> Owned {
    text(if of { "YES" } else { "NO" })
}

/// Numbers as an array, or as a vector.
fn numbers(of: impl Iterator<Item = usize>, is_vector: bool) -> Owned {
    let all = of.map(|number| number.to_string()).collect::<Vec<_>>();
    text(if is_vector { all.join(" ") } else { format!("{{{}}}", all.join(",")) })
}

fn all_indexes(schema: &Schema) -> impl Iterator<Item = (&Relation, &Index)> {
    schema.tables.iter().flat_map(|table| table.indexes.iter().map(move |index| (table, index)))
}

fn all_constraints(schema: &Schema) -> impl Iterator<Item = (&Relation, &Constraint)> {
    schema.tables.iter().flat_map(|table| table.constraints.iter().map(move |constraint| (table, constraint)))
}

fn named(constraint: &Constraint) -> [(&'static str, Owned); 3] {
    [
        ("constraint_catalog", text("postgres")),
        ("constraint_schema", text(SCHEMA)),
        ("constraint_name", text(&*constraint.name)),
    ]
}

/// Whether it can be deferred, and is.
fn deferrable(constraint: &Constraint) -> (bool, bool) {
    let checked = match &constraint.kind {
        Kind::Reference { definition, .. } => definition.checked,
        Kind::Unique(checked) => *checked,
        _ => Checked::Immediately,
    };
    (checked != Checked::Immediately, checked == Checked::Deferred)
}

fn roles(schema: &Schema) -> Vec<Record> {
    let row = |(oid, role): (u32, &RoleDef)| {
        record([
            ("oid", id(oid)),
            ("rolname", text(&*role.name)),
            ("rolsuper", truth(role.superuser)),
            ("rolinherit", truth(!role.no_inherit)),
            ("rolcreaterole", truth(role.create_role)),
            ("rolcreatedb", truth(role.create_database)),
            ("rolcanlogin", truth(role.login)),
            // What PostgreSQL's first role has, too.
            ("rolreplication", truth(role.superuser)),
            ("rolbypassrls", truth(role.superuser)),
            ("rolconnlimit", role.connections_max.map_or(Datum::Integer(-1), |most| Datum::Integer(most.into()))),
            ("rolpassword", Datum::Null),
        ])
    };
    schema.access.roles().map(row).collect()
}

/// What is granted of a table or sequence, as PostgreSQL shows it; nothing if only the owner has rights.
fn grants(schema: &Schema, object: Object, all: Privileges) -> Owned {
    let rights = schema.access.rights(object);
    if rights.grants.is_empty() {
        return Datum::Null;
    }
    let name = |role: u32| schema.role(role).map_or_else(|| role.to_string(), |name| name.to_owned());
    let owner = name(rights.owner);
    let shown = |(grantee, granted): (&Grantee, &Privileges)| {
        let to = match grantee {
            Grantee::Public => String::new(),
            Grantee::Role(role) => name(*role),
        };
        Some(format!("{to}={granted}/{owner}"))
    };
    let own = Some(format!("{owner}={all}/{owner}"));
    text(crate::array::to_text([own].into_iter().chain(rights.grants.iter().map(shown))))
}

fn classes(schema: &Schema) -> Vec<Record> {
    let class = |oid: u32, name: &str, kind: &'static str, columns: usize, method: u32| -> Record {
        vec![
            ("oid", id(oid)),
            ("relname", text(name)),
            ("relnamespace", id(SCHEMA_OID)),
            ("relowner", id(schema.owner(oid))),
            ("relam", id(method)),
            ("relfilenode", id(oid)),
            ("reltuples", Datum::Single(-1.0)),
            ("relpersistence", text("p")),
            ("relkind", text(kind)),
            ("relnatts", number(columns)),
            ("relispopulated", truth(true)),
            ("relreplident", text(if kind == "r" { "d" } else { "n" })),
        ]
    };
    let mut rows = Vec::new();
    for table in &schema.tables {
        let definition = table.definition();
        let is_of_table = |other: &Relation, constraint: &Constraint| match &constraint.kind {
            Kind::Reference { table: to, .. } => *to == table.oid || other.oid == table.oid,
            _ => false,
        };
        let refers = |other: &Relation| other.constraints.iter().any(|constraint| is_of_table(other, constraint));
        let columns = shown_columns(definition).count();
        let mut row = class(table.oid, &definition.name, "r", columns, HEAP);
        row.push(("relhasindex", truth(!table.indexes.is_empty())));
        row.push(("relchecks", number(definition.checks.len())));
        row.push(("relacl", grants(schema, Object::Table(table.handle.number()), Privileges::OF_TABLES)));
        row.push(("relhastriggers", truth(schema.tables.iter().any(refers))));
        rows.push(row);
        let index = |index: &Index| {
            class(index.oid, &index.name, "i", index.parts.len(), if index.is_hash { HASH } else { BTREE })
        };
        rows.extend(table.indexes.iter().map(index));
    }
    rows.extend(schema.sequences.iter().map(|numbers| {
        let mut row = class(numbers.oid, &numbers.definition.name, "S", 3, 0);
        row.push(("relacl", grants(schema, numbers.object, Privileges::OF_SEQUENCES)));
        row
    }));
    for (at, table) in TABLES.iter().enumerate() {
        let (kind, namespace, method) = match table.schema {
            CATALOG if VIEWS.contains(&table.name) => ("v", CATALOG_OID, 0),
            CATALOG => ("r", CATALOG_OID, HEAP),
            _ => ("v", INFORMATION_OID, 0),
        };
        let mut row = class(table.oid(at), table.name, kind, table.columns().count(), method);
        row.retain(|(column, _)| *column != "relnamespace");
        row.push(("relnamespace", id(namespace)));
        rows.push(row);
    }
    rows
}

/// The columns that a table has for SQL, with their numbers.
fn shown_columns(definition: &TableDef) -> impl Iterator<Item = (usize, &ColumnDef)> {
    definition.columns.iter().enumerate().filter(|(_, column)| !is_row_id(column))
}

fn attribute(table: u32, at: usize, name: &str, ty: SqlType) -> Record {
    let is_text = matches!(ty, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_));
    vec![
        ("attrelid", id(table)),
        ("attname", text(name)),
        ("atttypid", id(ty.oid())),
        ("attstattarget", Datum::Integer(-1)),
        ("attlen", Datum::Integer(ty.width().into())),
        ("attnum", number(at + 1)),
        ("attcacheoff", Datum::Integer(-1)),
        ("atttypmod", Datum::Integer(ty.modifier().into())),
        ("attbyval", truth(matches!(ty.width(), 1 | 2 | 4 | 8))),
        ("attalign", text("i")),
        ("attstorage", text(if ty.width() < 0 { "x" } else { "p" })),
        ("attislocal", truth(true)),
        ("attcollation", id(if is_text { COLLATION } else { 0 })),
    ]
}

fn attributes(schema: &Schema) -> Vec<Record> {
    let mut rows = Vec::new();
    for table in &schema.tables {
        let definition = table.definition();
        for (at, column) in shown_columns(definition) {
            let mut row = attribute(table.oid, at, &column.name, SqlType::of_column(column));
            row.push(("attnotnull", truth(!column.nullable)));
            row.push(("atthasdef", truth(default_of(column).is_some())));
            if let Some(identity) = &column.identity {
                let letter = if identity.kind == IdentityKind::Always { "a" } else { "d" };
                row.push(("attidentity", text(letter)));
            }
            rows.push(row);
        }
        for index in &table.indexes {
            for (at, part) in index.parts.iter().enumerate() {
                let column = &definition.columns[part.column.index()];
                // A hash index has numbers in the place of values.
                let ty = if index.is_hash { SqlType::Int4 } else { SqlType::of_column(column) };
                rows.push(attribute(index.oid, at, &column.name, ty));
            }
        }
    }
    for numbers in &schema.sequences {
        let columns = [("last_value", SqlType::Int8), ("log_cnt", SqlType::Int8), ("is_called", SqlType::Bool)];
        let row = |(at, (name, ty)): (usize, (&str, SqlType))| attribute(numbers.oid, at, name, ty);
        rows.extend(columns.into_iter().enumerate().map(row));
    }
    for (number, table) in TABLES.iter().enumerate() {
        let row = |(at, (name, ty)): (usize, (&str, Column))| attribute(table.oid(number), at, name, ty.sql());
        rows.extend(table.columns().enumerate().map(row));
    }
    rows
}

/// The default of a column in SQL.
fn default_of(column: &ColumnDef) -> Option<String> {
    if let Some(text) = &column.computed_default {
        return Some(match sequence_of_default(text) {
            Some(sequence) => format!("nextval('{}'::regclass)", sequence.replace('\'', "''")),
            None => text.to_string(),
        });
    }
    let value = column.default.as_ref()?;
    let ty = SqlType::of_column(column);
    let is_plain = match ty {
        SqlType::Bool => true,
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Float4 | SqlType::Float8 | SqlType::Numeric(_) => {
            !value.starts_with('-')
        }
        _ => false,
    };
    if is_plain {
        return Some(value.to_string());
    }
    let ty = match ty {
        // A constant has the narrowest type from `integer` on.
        SqlType::Int2 | SqlType::Int8 if value.parse::<i32>().is_ok() => "integer".to_owned(),
        SqlType::Varchar(_) => "character varying".to_owned(),
        SqlType::Char(_) => "bpchar".to_owned(),
        SqlType::Numeric(_) => "numeric".to_owned(),
        other => other.to_string(),
    };
    Some(format!("'{}'::{ty}", value.replace('\'', "''")))
}

fn indexes(schema: &Schema) -> Vec<Record> {
    let row = |(table, index): (&Relation, &Index)| {
        let is_text = |ty: ColumnType| matches!(ty, ColumnType::Text { .. } | ColumnType::LongText);
        let definition = table.definition();
        let parts = || index.parts.iter();
        let collation = |ty: ColumnType| if is_text(ty) { COLLATION as usize } else { 0 };
        vec![
            ("indexrelid", id(index.oid)),
            ("indrelid", id(table.oid)),
            ("indnatts", number(index.parts.len())),
            ("indnkeyatts", number(index.parts.len())),
            ("indisunique", truth(index.is_unique)),
            ("indnullsnotdistinct", truth(index.nulls_not_distinct)),
            ("indisprimary", truth(index.is_primary)),
            ("indimmediate", truth(index.checked == Checked::Immediately)),
            ("indisvalid", truth(true)),
            ("indisready", truth(true)),
            ("indislive", truth(true)),
            ("indkey", numbers(parts().map(|part| part.column.index() + 1), true)),
            ("indcollation", numbers(parts().map(|part| collation(definition.columns[part.column.index()].ty)), true)),
            ("indclass", numbers(parts().map(|_| 0), true)),
            // Descending, with NULL first.
            ("indoption", numbers(parts().map(|part| if part.descending { 3 } else { 0 }), true)),
        ]
    };
    all_indexes(schema).map(row).collect()
}

fn constraints(schema: &Schema) -> Vec<Record> {
    let letter = |change: OnChange| match change {
        OnChange::NoAction => "a",
        OnChange::Restrict => "r",
        OnChange::Cascade => "c",
        OnChange::SetNull => "n",
        OnChange::SetDefault => "d",
    };
    let row = |(table, constraint): (&Relation, &Constraint)| {
        let (deferrable, deferred) = deferrable(constraint);
        let mut row: Record = vec![
            ("oid", id(constraint.oid)),
            ("conname", text(&*constraint.name)),
            ("connamespace", id(SCHEMA_OID)),
            ("contype", text(constraint.kind.letter())),
            ("condeferrable", truth(deferrable)),
            ("condeferred", truth(deferred)),
            ("convalidated", truth(true)),
            ("conrelid", id(table.oid)),
            ("conindid", id(constraint.index)),
            ("conislocal", truth(true)),
            ("connoinherit", truth(!matches!(constraint.kind, Kind::Check(_)))),
            ("conkey", numbers(constraint.columns.iter().copied(), false)),
        ];
        match &constraint.kind {
            Kind::Reference { definition, table: to } => {
                let other = schema.tables.iter().find(|table| table.oid == *to);
                let columns = other.map_or_else(Vec::new, |other| referenced(definition, other));
                row.extend([
                    ("confrelid", id(*to)),
                    ("confupdtype", text(letter(definition.on_update))),
                    ("confdeltype", text(letter(definition.on_delete))),
                    ("confmatchtype", text("s")),
                    ("confkey", numbers(columns.into_iter(), false)),
                ]);
            }
            Kind::Check(expression) => {
                row.push(("conbin", text(&**expression)));
                row.extend(["confupdtype", "confdeltype", "confmatchtype"].map(|column| (column, text(" "))));
            }
            Kind::Primary | Kind::Unique(_) => {
                row.extend(["confupdtype", "confdeltype", "confmatchtype"].map(|column| (column, text(" "))));
            }
        }
        row
    };
    all_constraints(schema).map(row).collect()
}

/// Types: number, name, number of the array, category, and whether it is preferred in that.
pub(super) const TYPES: &[(u32, &str, u32, &str, bool)] = &[
    (16, "bool", 1000, "B", true),
    (17, "bytea", 1001, "U", false),
    (18, "char", 1002, "Z", false),
    (19, "name", 1003, "S", false),
    (20, "int8", 1016, "N", false),
    (21, "int2", 1005, "N", false),
    (22, "int2vector", 1006, "A", false),
    (23, "int4", 1007, "N", false),
    (24, "regproc", 1008, "N", false),
    (25, "text", 1009, "S", true),
    (26, "oid", 1028, "N", true),
    (30, "oidvector", 1013, "A", false),
    (194, "pg_node_tree", 0, "Z", false),
    (700, "float4", 1021, "N", false),
    (701, "float8", 1022, "N", true),
    (1033, "aclitem", 1034, "U", false),
    (1042, "bpchar", 1014, "S", false),
    (1043, "varchar", 1015, "S", false),
    (1082, "date", 1182, "D", false),
    (1083, "time", 1183, "D", false),
    (1114, "timestamp", 1115, "D", false),
    (1184, "timestamptz", 1185, "D", true),
    (1186, "interval", 1187, "T", true),
    (1700, "numeric", 1231, "N", false),
    (2205, "regclass", 2210, "N", false),
    (2206, "regtype", 2211, "N", false),
    (2950, "uuid", 2951, "U", false),
];

fn types(_: &Schema) -> Vec<Record> {
    let width = |oid: u32| match oid {
        19 => 64,
        18 => 1,
        24 | 2205 | 2206 => 4,
        1033 => 12,
        oid => SqlType::of_oid(oid).map_or(-1, SqlType::width),
    };
    let row = |oid: u32, name: String, element: u32, array: u32, category: &str, is_preferred: bool| -> Record {
        let is_array = element != 0 && !matches!(oid, 22 | 30);
        let (length, is_text) = (if is_array { -1 } else { width(oid) }, matches!(category, "S"));
        let call = |what: &str| {
            let own = if is_array { "array" } else { &*name };
            text(match name.contains("timestamp") || name == "date" || name == "time" || name == "interval" {
                true => format!("{own}_{what}"),
                false => format!("{own}{}{what}", if is_array { "_" } else { "" }),
            })
        };
        vec![
            ("oid", id(oid)),
            ("typnamespace", id(CATALOG_OID)),
            ("typowner", id(ROLE_OID)),
            ("typlen", Datum::Integer(length.into())),
            ("typbyval", truth(matches!(length, 1 | 2 | 4 | 8))),
            ("typtype", text("b")),
            ("typcategory", text(if is_array { "A" } else { category })),
            ("typispreferred", truth(is_preferred)),
            ("typisdefined", truth(true)),
            ("typdelim", text(",")),
            ("typelem", id(element)),
            ("typarray", id(array)),
            ("typinput", call("in")),
            ("typoutput", call("out")),
            ("typreceive", call("recv")),
            ("typsend", call("send")),
            ("typalign", text(if length == 8 { "d" } else { "i" })),
            ("typstorage", text(if length < 0 { "x" } else { "p" })),
            ("typtypmod", Datum::Integer(-1)),
            ("typcollation", id(if is_text && name != "name" { COLLATION } else { 0 })),
            ("typname", text(name)),
        ]
    };
    let mut rows = Vec::new();
    for &(oid, name, array, category, is_preferred) in TYPES {
        let element = match oid {
            22 => 21,
            30 => 26,
            _ => 0,
        };
        rows.push(row(oid, name.to_owned(), element, array, category, is_preferred));
        if array != 0 {
            rows.push(row(array, format!("_{name}"), oid, 0, "A", false));
        }
    }
    rows
}

fn information_columns(schema: &Schema) -> Vec<Record> {
    let mut rows = Vec::new();
    for table in &schema.tables {
        let definition = table.definition();
        for (at, column) in shown_columns(definition) {
            let ty = SqlType::of_column(column);
            let name = ty.to_string();
            let name = match ty {
                SqlType::Numeric(_) => "numeric",
                SqlType::Varchar(_) => "character varying",
                SqlType::Char(_) => "character",
                _ => &*name,
            };
            let mut row: Record = vec![
                ("table_catalog", text("postgres")),
                ("table_schema", text(SCHEMA)),
                ("table_name", text(&*definition.name)),
                ("column_name", text(&*column.name)),
                ("ordinal_position", number(at + 1)),
                ("column_default", default_of(column).map_or(Datum::Null, text)),
                ("is_nullable", yes(column.nullable)),
                ("data_type", text(name)),
                ("udt_catalog", text("postgres")),
                ("udt_schema", text(CATALOG)),
                ("udt_name", text(ty.short_name())),
                ("is_identity", yes(column.identity.is_some())),
                ("is_generated", text("NEVER")),
                ("is_updatable", yes(true)),
            ];
            let int = |value: u32| Datum::Integer(value.into());
            let digits = match ty {
                SqlType::Int2 => Some((16, 2, Some(0))),
                SqlType::Int4 => Some((32, 2, Some(0))),
                SqlType::Int8 => Some((64, 2, Some(0))),
                SqlType::Float4 => Some((24, 2, None)),
                SqlType::Float8 => Some((53, 2, None)),
                SqlType::Numeric(Some((digits, scale))) => Some((digits.into(), 10, Some(scale.into()))),
                _ => None,
            };
            if let Some((digits, radix, scale)) = digits {
                row.extend([("numeric_precision", int(digits)), ("numeric_precision_radix", int(radix))]);
                row.extend(scale.map(|scale: u32| ("numeric_scale", int(scale))));
            }
            let is_radix = matches!(ty, SqlType::Numeric(None));
            row.extend(is_radix.then(|| ("numeric_precision_radix", int(10))));
            match ty {
                SqlType::Varchar(Some(most)) | SqlType::Char(most) => {
                    row.push(("character_maximum_length", int(most)));
                    row.push(("character_octet_length", int(most.saturating_mul(4))));
                }
                SqlType::Text | SqlType::Varchar(None) => row.push(("character_octet_length", int(1 << 30))),
                SqlType::Date => row.push(("datetime_precision", int(0))),
                SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => {
                    row.push(("datetime_precision", int(6)));
                }
                _ => {}
            }
            if let Some(identity) = &column.identity {
                let kind = if identity.kind == IdentityKind::Always { "ALWAYS" } else { "BY DEFAULT" };
                row.push(("identity_generation", text(kind)));
            }
            // What has no value for a column is NULL there, and not 0.
            for column in [
                "character_maximum_length",
                "character_octet_length",
                "numeric_precision",
                "numeric_precision_radix",
                "numeric_scale",
                "datetime_precision",
            ] {
                if !row.iter().any(|(known, _)| *known == column) {
                    row.push((column, Datum::Null));
                }
            }
            rows.push(row);
        }
    }
    rows
}
