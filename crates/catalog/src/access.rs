//! Roles, and what they may do with tables and sequences.
//!
//! A role is a user or a group. It has what is granted to it, to the roles that it is a member of, and to everybody
//! ([`Grantee::Public`]). The owner of a table may do everything with it, and a superuser with all tables. The model is
//! PostgreSQL's, without grant options: owners and superusers grant.
//!
//! Invariant: there is always the superuser [`Access::FIRST`]. So a database without any row of a role has one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// What a role may do. A set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Privileges(u16);

impl Privileges {
    /// None.
    pub const NONE: Privileges = Privileges(0);
    /// Reading rows.
    pub const SELECT: Privileges = Privileges(1);
    /// Inserting rows.
    pub const INSERT: Privileges = Privileges(1 << 1);
    /// Changing rows.
    pub const UPDATE: Privileges = Privileges(1 << 2);
    /// Deleting rows.
    pub const DELETE: Privileges = Privileges(1 << 3);
    /// Deleting all rows at once.
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    /// Declaring foreign keys that refer to the table.
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    /// Declaring triggers, of which there are none.
    pub const TRIGGER: Privileges = Privileges(1 << 6);
    /// Naming what is in a schema; taking numbers of a sequence.
    pub const USAGE: Privileges = Privileges(1 << 7);
    /// Creating tables in a schema.
    pub const CREATE: Privileges = Privileges(1 << 8);
    /// All that there are of tables.
    pub const OF_TABLES: Privileges = Privileges(0x7f);
    /// All that there are of sequences.
    pub const OF_SEQUENCES: Privileges = Privileges(0x85);
    /// All that there are of schemas.
    pub const OF_SCHEMAS: Privileges = Privileges(0x180);

    /// Each with its name and PostgreSQL's letter for it.
    pub const NAMES: [(Privileges, &'static str, char); 9] = [
        (Privileges::INSERT, "INSERT", 'a'),
        (Privileges::SELECT, "SELECT", 'r'),
        (Privileges::UPDATE, "UPDATE", 'w'),
        (Privileges::DELETE, "DELETE", 'd'),
        (Privileges::TRUNCATE, "TRUNCATE", 'D'),
        (Privileges::REFERENCES, "REFERENCES", 'x'),
        (Privileges::TRIGGER, "TRIGGER", 't'),
        (Privileges::USAGE, "USAGE", 'U'),
        (Privileges::CREATE, "CREATE", 'C'),
    ];

    /// Those of PostgreSQL's letters; `None` if one of them is unknown.
    pub fn of_letters(letters: &str) -> Option<Privileges> {
        let of = |letter: char| Privileges::NAMES.iter().find(|(.., own)| *own == letter).map(|(one, ..)| *one);
        letters.chars().try_fold(Privileges::NONE, |all, letter| Some(all | of(letter)?))
    }

    /// Those with their names.
    pub fn each(self) -> impl Iterator<Item = (Privileges, &'static str)> {
        Privileges::NAMES.into_iter().filter(move |(one, ..)| self.has(*one)).map(|(one, name, _)| (one, name))
    }

    /// Whether it has all of these.
    pub fn has(self, others: Privileges) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that it has and the others lack.
    #[must_use]
    pub fn without(self, others: Privileges) -> Privileges {
        Privileges(self.0 & !others.0)
    }
}

impl BitOr for Privileges {
    type Output = Privileges;
    fn bitor(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }
}

impl BitOrAssign for Privileges {
    fn bitor_assign(&mut self, other: Privileges) {
        *self = *self | other;
    }
}

/// PostgreSQL's letters.
impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut each = Privileges::NAMES.iter().filter(|(one, ..)| self.has(*one));
        each.try_for_each(|(.., letter)| write!(f, "{letter}"))
    }
}

/// A text that nobody is shown: what is stored of a password.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RoleDef {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub superuser: bool,
    /// Whether it may connect.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub login: bool,
    /// Whether it may make and change roles that are no superusers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub create_role: bool,
    /// Whether it may create databases, of which there is one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub create_database: bool,
    /// Whether it has only by SET ROLE what its groups have.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub no_inherit: bool,
    /// What is stored of its password: a SCRAM-SHA-256 verifier.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub password: Option<Secret>,
    /// The most connections that it may have.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub connections_max: Option<u32>,
    /// The ids of the roles that it is a member of.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeSet::is_empty"))]
    pub member_of: BTreeSet<u32>,
}

impl RoleDef {
    /// A role that may do nothing.
    pub fn new(name: impl Into<String>) -> RoleDef {
        RoleDef {
            name: name.into(),
            superuser: false,
            login: false,
            create_role: false,
            create_database: false,
            no_inherit: false,
            password: None,
            connections_max: None,
            member_of: BTreeSet::new(),
        }
    }
}

/// To whom something is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    /// Everybody.
    Public,
    /// The role with this id.
    Role(u32),
}

/// To what there are rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// The schema `public`.
    Schema,
    /// The table at this position among the tables, which its replacements have too.
    Table(u64),
    /// The sequence with this id.
    Sequence(u32),
}

/// The rights to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The id of the role that owns it.
    pub owner: u32,
    /// What is granted to others.
    pub grants: BTreeMap<Grantee, Privileges>,
}

/// A grant as rows of the catalogue and dumps have it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct WrittenGrant {
    /// Everybody, if it is not there.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    to: Option<u32>,
    /// PostgreSQL's letters.
    privileges: String,
}

impl Rights {
    /// What is granted, to be written.
    pub fn written(&self) -> Vec<WrittenGrant> {
        let written = |(to, privileges): (&Grantee, &Privileges)| WrittenGrant {
            to: match to {
                Grantee::Public => None,
                Grantee::Role(id) => Some(*id),
            },
            privileges: privileges.to_string(),
        };
        self.grants.iter().map(written).collect()
    }

    /// The rights that were written so. `id` has the ids of roles now.
    ///
    /// # Errors
    /// There are no such privileges; those of `id`.
    pub fn of_written(
        owner: u32,
        grants: &[WrittenGrant],
        id: impl Fn(u32) -> Result<u32, String>,
    ) -> Result<Rights, String> {
        let grant = |WrittenGrant { to, privileges }: &WrittenGrant| {
            let to = to.map(&id).transpose()?.map_or(Grantee::Public, Grantee::Role);
            let unknown = || format!("there are no privileges `{privileges}`");
            Ok((to, Privileges::of_letters(privileges).ok_or_else(unknown)?))
        };
        let grants = grants.iter().map(grant).collect::<Result<_, String>>()?;
        Ok(Rights { owner: id(owner)?, grants })
    }
}

impl Rights {
    fn first(object: Object) -> Rights {
        let granted = match object {
            Object::Schema => BTreeMap::from([(Grantee::Public, Privileges::USAGE)]),
            Object::Table(_) | Object::Sequence(_) => BTreeMap::new(),
        };
        Rights { owner: Access::FIRST, grants: granted }
    }
}

/// The roles of a database, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    roles: BTreeMap<u32, RoleDef>,
    /// Of objects that do not have the first rights.
    rights: BTreeMap<Object, Rights>,
    /// What the salts of unknown users are made of. There is one when there is a password.
    secret: Option<Secret>,
    /// The id of the next role. One that was removed does not give its id to another, as sessions may know it.
    next: u32,
}

impl Default for Access {
    fn default() -> Access {
        let first = RoleDef {
            superuser: true,
            login: true,
            create_role: true,
            create_database: true,
            ..RoleDef::new("postgres")
        };
        Access {
            roles: BTreeMap::from([(Access::FIRST, first)]),
            rights: BTreeMap::new(),
            secret: None,
            next: Access::OTHERS,
        }
    }
}

impl Access {
    /// The id of the superuser that is always there. It is PostgreSQL's.
    pub const FIRST: u32 = 10;
    /// The least id of other roles.
    pub const OTHERS: u32 = 16_384;

    /// The roles, in the order of their ids.
    pub fn roles(&self) -> impl Iterator<Item = (u32, &RoleDef)> {
        self.roles.iter().map(|(id, role)| (*id, role))
    }

    /// The role with this id.
    pub fn role(&self, id: u32) -> Option<&RoleDef> {
        self.roles.get(&id)
    }

    /// The role with this name, and its id.
    pub fn named(&self, name: &str) -> Option<(u32, &RoleDef)> {
        self.roles().find(|(_, role)| role.name == name)
    }

    /// The objects that do not have the first rights.
    pub fn objects(&self) -> impl Iterator<Item = (Object, &Rights)> {
        self.rights.iter().map(|(object, rights)| (*object, rights))
    }

    /// The rights to an object.
    pub fn rights(&self, object: Object) -> Rights {
        self.rights.get(&object).cloned().unwrap_or_else(|| Rights::first(object))
    }

    /// What the salts of unknown users are made of, if there is any password.
    pub fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Sets what the salts of unknown users are made of.
    pub fn set_secret(&mut self, secret: Secret) {
        self.secret = Some(secret);
    }

    /// Adds a role. Returns its id.
    pub fn add(&mut self, role: RoleDef) -> u32 {
        let id = self.next;
        self.put(id, role);
        id
    }

    /// Adds or replaces a role.
    pub fn put(&mut self, id: u32, role: RoleDef) {
        self.next = self.next.max(id.saturating_add(1));
        self.roles.insert(id, role);
    }

    /// Removes a role, with its memberships. Objects of which it has rights are left as they are.
    pub fn remove(&mut self, id: u32) {
        self.roles.remove(&id);
        for role in self.roles.values_mut() {
            role.member_of.remove(&id);
        }
    }

    /// Changes the rights to an object.
    pub fn set_rights(&mut self, object: Object, mut rights: Rights) {
        rights.grants.retain(|_, granted| !granted.is_empty());
        match rights == Rights::first(object) {
            true => drop(self.rights.remove(&object)),
            false => drop(self.rights.insert(object, rights)),
        }
    }

    /// Forgets an object that there is no more.
    pub fn forget(&mut self, object: Object) {
        self.rights.remove(&object);
    }

    /// Whether a role is another one, or a member of it, directly or not. A superuser is of all.
    pub fn is_member(&self, role: u32, of: u32) -> bool {
        self.is_superuser(role) || self.reached(role, false).contains(&of)
    }

    /// Whether a role may do everything.
    pub fn is_superuser(&self, role: u32) -> bool {
        self.role(role).is_some_and(|role| role.superuser)
    }

    /// Whether a role has the rights of another one without SET ROLE.
    pub fn acts_as(&self, role: u32, other: u32) -> bool {
        self.is_superuser(role) || self.reached(role, true).contains(&other)
    }

    /// A role and those that it is a member of; if it `inherits`, those whose rights it has.
    fn reached(&self, role: u32, inherits: bool) -> BTreeSet<u32> {
        let (mut reached, mut left) = (BTreeSet::new(), vec![role]);
        while let Some(id) = left.pop() {
            if reached.insert(id)
                && let Some(role) = self.role(id)
                && !(inherits && role.no_inherit)
            {
                left.extend(&role.member_of);
            }
        }
        reached
    }

    /// Whether a role may do all of these.
    pub fn may(&self, role: u32, object: Object, wanted: Privileges) -> bool {
        if self.is_superuser(role) {
            return true;
        }
        let (rights, reached) = (self.rights(object), self.reached(role, true));
        if reached.contains(&rights.owner) {
            return true;
        }
        let of = |grantee: &Grantee| match grantee {
            Grantee::Public => true,
            Grantee::Role(id) => reached.contains(id),
        };
        let granted = rights.grants.iter().filter(|(grantee, _)| of(grantee));
        granted.fold(Privileges::NONE, |all, (_, granted)| all | *granted).has(wanted)
    }

    /// Checks that it makes sense.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for (id, role) in self.roles() {
            let name = &role.name;
            if name.is_empty() || !names.insert(name) {
                return Err(format!("there are two roles \"{name}\", or one without a name"));
            }
            if let Some(lacks) = role.member_of.iter().find(|of| !self.roles.contains_key(of)) {
                return Err(format!("role \"{name}\" is a member of role {lacks}, which there is not"));
            }
            if role.member_of.iter().any(|of| self.reached(*of, false).contains(&id)) {
                return Err(format!("role \"{name}\" is a member of itself"));
            }
        }
        if self.next == u32::MAX {
            return Err("there are no more ids for roles".to_owned());
        }
        match self.role(Access::FIRST) {
            Some(first) if first.superuser => {}
            _ => return Err(format!("role {} is no superuser", Access::FIRST)),
        }
        for (object, rights) in self.objects() {
            let granted = rights.grants.keys().filter_map(|grantee| match grantee {
                Grantee::Public => None,
                Grantee::Role(id) => Some(*id),
            });
            if let Some(lacks) = granted.chain([rights.owner]).find(|id| !self.roles.contains_key(id)) {
                return Err(format!("{object:?} has rights of role {lacks}, which there is not"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Object = Object::Table(3);

    fn grant(access: &mut Access, to: Grantee, granted: Privileges) {
        let mut rights = access.rights(TABLE);
        *rights.grants.entry(to).or_default() |= granted;
        access.set_rights(TABLE, rights);
    }

    #[test]
    fn letters_are_read_back() {
        let all = Privileges::OF_TABLES | Privileges::OF_SCHEMAS;
        assert_eq!(all.to_string(), "arwdDxtUC");
        assert_eq!(Privileges::of_letters("arwdDxtUC"), Some(all));
        assert_eq!(Privileges::of_letters(""), Some(Privileges::NONE));
        assert_eq!(Privileges::of_letters("rz"), None);
        assert_eq!(Privileges::OF_SEQUENCES.to_string(), "rwU");
    }

    #[test]
    fn owners_superusers_members_and_the_public_have_rights() {
        let mut access = Access::default();
        let [ann, bob, group] = ["ann", "bob", "staff"].map(|name| access.add(RoleDef::new(name)));
        assert_eq!(ann, Access::OTHERS);
        let may = |access: &Access, role| access.may(role, TABLE, Privileges::SELECT);
        assert!(may(&access, Access::FIRST) && !may(&access, ann) && !may(&access, bob));
        access.set_rights(TABLE, Rights { owner: ann, ..Rights::first(TABLE) });
        assert!(may(&access, ann) && !may(&access, bob));
        grant(&mut access, Grantee::Role(group), Privileges::SELECT);
        assert!(!may(&access, bob));
        let member = RoleDef { member_of: [group].into(), ..RoleDef::new("bob") };
        access.put(bob, member.clone());
        assert!(may(&access, bob) && !access.may(bob, TABLE, Privileges::SELECT | Privileges::INSERT));
        access.put(bob, RoleDef { no_inherit: true, ..member });
        assert!(!may(&access, bob) && access.is_member(bob, group));
        grant(&mut access, Grantee::Public, Privileges::SELECT);
        assert!(may(&access, bob));
        assert_eq!(access.check(), Ok(()));
        access.forget(TABLE);
        assert_eq!(access.objects().count(), 0);
    }

    #[test]
    fn contradictions_are_found() {
        let broken = |change: &dyn Fn(&mut Access)| {
            let mut access = Access::default();
            access.add(RoleDef::new("ann"));
            change(&mut access);
            access.check().expect_err("it makes no sense")
        };
        broken(&|access| _ = access.add(RoleDef::new("ann")));
        broken(&|access| access.remove(Access::FIRST));
        broken(&|access| access.put(Access::OTHERS, RoleDef { member_of: [7].into(), ..RoleDef::new("ann") }));
        broken(&|access| {
            access.put(Access::OTHERS, RoleDef { member_of: [Access::OTHERS].into(), ..RoleDef::new("ann") });
        });
        broken(&|access| grant(access, Grantee::Role(7), Privileges::SELECT));
    }
}
