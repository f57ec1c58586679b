//! Roles and rights outlive process and machine, as whole changes, with the tables to which they are.

use seriatim::catalog::{
    Access, ColumnDef, ColumnType, Grantee, Object, Privileges, Rights, RoleDef, Secret, TableDef,
};
use seriatim::dump::Format;
use seriatim::{Database, Rng, SchemaError};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::rng::{seed, tries};

use crate::accounts::{names, small};

fn table(name: &str) -> TableDef {
    TableDef::builder(name.to_owned())
        .column(ColumnDef::new("id", ColumnType::U32))
        .key(["id"])
        .finish()
        .expect("sound")
}

/// What there is, by names: positions of tables are nobody's business.
fn said(db: &Database) -> Vec<String> {
    let access = db.access();
    let mut said: Vec<String> = access.roles().map(|(_, role)| format!("{role:?}")).collect();
    for (object, rights) in access.objects() {
        let tables = db.table_names().into_iter().map(|name| (db.open_dyn(&name).expect("it exists"), name));
        let name = tables.filter(|(table, _)| db.object_of(table) == object).map(|(_, name)| name).next();
        assert!(name.is_some() || object == Object::Schema, "{object:?} is of no table");
        said.push(format!("{name:?} {rights:?}"));
    }
    said.extend(access.secret().map(|secret| secret.0.clone()));
    said.extend(db.table_names());
    said
}

/// One random change, of or for this role.
fn change(db: &Database, rng: &mut Rng, id: u32, number: u32) -> Result<(), SchemaError> {
    let names = db.table_names();
    match (rng.below(6), names.first()) {
        (0, _) => db.migration().create(table(&format!("t{number}"))).own(format!("t{number}"), id).run().map(drop),
        (1, Some(name)) => db.migration().drop_table(name.as_str()).run().map(drop),
        (2, Some(name)) => db.migration().truncate(name.as_str()).run().map(drop),
        (3, Some(name)) => {
            let object = db.object_of(&db.open_dyn(name)?);
            db.change_access(|access| {
                let mut rights = access.rights(object);
                rights.grants.insert(Grantee::Role(id), Privileges::SELECT | Privileges::UPDATE);
                rights.grants.remove(&Grantee::Public);
                access.set_rights(object, rights);
                Ok(())
            })
        }
        (4, _) => db.change_access(|access| {
            let group = access.add(RoleDef::new(format!("group{number}")));
            let password = Some(Secret(format!("secret{number}")));
            access.add(RoleDef { password, member_of: [group].into(), ..RoleDef::new(format!("role{number}")) });
            access.set_secret(Secret(number.to_string()));
            Ok(())
        }),
        _ => db.change_access(|access| {
            let owns = access
                .objects()
                .any(|(_, rights)| rights.owner == id || rights.grants.contains_key(&Grantee::Role(id)));
            if id != Access::FIRST && !owns {
                access.remove(id);
            }
            let grants = [(Grantee::Public, Privileges::OF_SCHEMAS)].into();
            access.set_rights(Object::Schema, Rights { owner: Access::FIRST, grants });
            Ok(())
        }),
    }
}

/// After a power cut there is what was before the last change or after it.
#[test]
fn a_power_cut_leaves_whole_changes_of_roles_and_rights() {
    let seed = seed("a_power_cut_leaves_whole_changes_of_roles_and_rights");
    for protocol in names() {
        for turn in 0..tries(3, 30) {
            let mut rng = Rng::from_seed(seed ^ turn);
            let case = format!("{protocol}, seed {seed}, turn {turn}");
            let disk = FaultyDisk::new(rng.next_u64());
            drop(small(protocol, &disk).open().expect("a new database opens"));
            for life in 0..4 {
                let db = small(protocol, &disk).open().expect("it recovers");
                if rng.percent(70) {
                    disk.crash_at(rng.range(1, 60));
                }
                let (mut last, mut failed) = (said(&db), None);
                for number in (0..12).map(|at| life * 100 + at) {
                    if rng.percent(10) {
                        let _ = db.checkpoint();
                    }
                    let ids: Vec<u32> = db.access().roles().map(|(id, _)| id).collect();
                    let id = ids[rng.below(ids.len() as u64) as usize];
                    match change(&db, &mut rng, id, number) {
                        Ok(()) => last = said(&db),
                        Err(_) => {
                            failed = Some((number, id));
                            break;
                        }
                    }
                }
                disk.power_off();
                drop(db);
                disk.reboot();
                let db = small(protocol, &disk).open().expect("it recovers");
                let case = format!("{case}, life {life}");
                let Some((number, id)) = failed.filter(|_| said(&db) != last) else {
                    assert_eq!(said(&db), last, "{case}");
                    continue;
                };
                // A change whose commit was not acknowledged was made: all of it.
                let access = db.access();
                access.check().expect("it makes sense");
                let has = |name: &str| access.named(&format!("{name}{number}")).is_some();
                assert_eq!(has("group"), has("role"), "{case}");
                assert_eq!(has("role"), access.secret().is_some_and(|secret| secret.0 == number.to_string()), "{case}");
                if let Ok(table) = db.open_dyn(&format!("t{number}")) {
                    assert_eq!(access.rights(db.object_of(&table)).owner, id, "{case}");
                }
            }
        }
    }
}

/// A directory with rights of a role that there is not could not be opened.
#[test]
fn a_role_that_is_gone_owns_no_table() {
    for protocol in names() {
        let disk = FaultyDisk::new(1);
        let db = small(protocol, &disk).open().expect("a new database opens");
        let mut id = 0;
        let added = db.change_access::<SchemaError>(|access| {
            id = access.add(RoleDef::new("ann"));
            Ok(())
        });
        added.expect("it is new");
        db.change_access::<SchemaError>(|access| {
            access.remove(id);
            Ok(())
        })
        .expect("it owns nothing");
        let refused = |created: Result<(), SchemaError>| {
            let error = created.expect_err("nobody would own it").to_string();
            assert!(error.contains(&format!("is of role {id}, which there is not")), "under {protocol}: {error}");
        };
        refused(db.migration().create(table("t")).own("t", id).run().map(drop));
        let mut session = db.session();
        let tx = session.begin().expect("a worker is free");
        refused(tx.migration().create(table("t")).own("t", id).run().map(drop));
        tx.commit().expect("it did nothing");
        db.migration().create(table("t")).own("t", Access::FIRST).run().expect("the name is free");
        drop(session);
        drop(db);
        let db = small(protocol, &disk).open().expect("it makes sense");
        assert_eq!(db.table_names(), ["t"], "under {protocol}");
    }
}

#[test]
fn a_dump_has_roles_and_rights() {
    let db = Database::in_memory().expect("there is memory");
    for name in ["a", "b"] {
        db.migration().create(table(name)).run().expect("it is new");
    }
    let object = |db: &Database, name: &str| db.object_of(&db.open_dyn(name).expect("it exists"));
    let of_b = object(&db, "b");
    db.change_access(|access| {
        let group = access.add(RoleDef::new("group"));
        let password = Some(Secret("SCRAM-SHA-256$".to_owned()));
        let ann = access.add(RoleDef { password, member_of: [group].into(), ..RoleDef::new("ann") });
        let grants = [(Grantee::Role(group), Privileges::SELECT), (Grantee::Public, Privileges::INSERT)].into();
        access.set_rights(of_b, Rights { owner: ann, grants });
        Ok::<(), SchemaError>(())
    })
    .expect("it makes sense");
    let mut dump = Vec::new();
    db.dump(Format::Json, &[], &mut dump).expect("there is memory");
    // Into a database that has a role already, so that ids differ.
    let copy = Database::in_memory().expect("there is memory");
    let bob = |access: &mut Access| {
        access.add(RoleDef::new("bob"));
        Ok::<(), SchemaError>(())
    };
    copy.change_access(bob).expect("it is new");
    copy.load(&dump[..]).expect("it is whole");
    let access = copy.access();
    let (ann, role) = access.named("ann").expect("it was loaded");
    let (group, _) = access.named("group").expect("it was loaded");
    assert_eq!(role.password, Some(Secret("SCRAM-SHA-256$".to_owned())));
    assert!(role.member_of.contains(&group) && access.secret().is_some());
    let rights = access.rights(object(&copy, "b"));
    assert_eq!((rights.owner, rights.grants.len()), (ann, 2));
    assert!(access.may(group, object(&copy, "b"), Privileges::SELECT | Privileges::INSERT));
    assert!(!access.may(ann, object(&copy, "a"), Privileges::SELECT));
    // Of one table there are only the rows.
    let mut one = Vec::new();
    db.dump(Format::Json, &["b"], &mut one).expect("there is memory");
    assert!(!String::from_utf8(one).expect("text").contains("ann"));
    let cut = String::from_utf8(dump).expect("text").replace("\"roles\":3", "\"roles\":2");
    assert!(Database::in_memory().expect("there is memory").load(cut.as_bytes()).is_err());
}
