//! Roles and their rights, for those who run statements of others.

use std::sync::Arc;

use seriatim_catalog::{Access, Object};

use crate::{Database, DynHandle, SchemaError, Sequence};

/// Roles and rights. A database keeps them, durably, as tables are kept. It does not ask for them: a program may use
/// every table. SQL asks when a statement runs.
impl Database {
    /// Returns the roles and rights that there are.
    pub fn access(&self) -> Arc<Access> {
        self.engine().access()
    }

    /// Returns a number that is another one after each change of roles and rights. A check that was made for the same
    /// number still holds.
    #[inline]
    pub fn access_generation(&self) -> u64 {
        self.engine().access_generation()
    }

    /// Changes roles and rights. Durable when this returns.
    ///
    /// ```
    /// use seriatim::catalog::{Grantee, Privileges, RoleDef};
    /// use seriatim::{Database, SchemaError, Table};
    ///
    /// #[derive(Table)]
    /// #[table(name = "account", key(id))]
    /// struct Account {
    ///     id: u32,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// db.create::<Account>()?;
    /// let account = db.object_of(&db.open_dyn("account")?);
    /// db.change_access(|access| {
    ///     let auditor = access.add(RoleDef::new("auditor"));
    ///     let mut rights = access.rights(account);
    ///     rights.grants.insert(Grantee::Role(auditor), Privileges::SELECT);
    ///     access.set_rights(account, rights);
    ///     Ok::<(), SchemaError>(())
    /// })?;
    /// let access = db.access();
    /// let (auditor, _) = access.named("auditor").expect("it was added");
    /// assert!(access.may(auditor, account, Privileges::SELECT));
    /// assert!(!access.may(auditor, account, Privileges::DELETE));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `change`. The result makes no sense ([`Access::check`]). A transaction that changes tables stays open
    /// ([`SchemaError::Busy`]). It cannot be made durable. Nothing is changed then, unless the disk is full: what was
    /// changed becomes durable when there is space.
    pub fn change_access<E: From<SchemaError>>(
        &self,
        change: impl FnOnce(&mut Access) -> Result<(), E>,
    ) -> Result<(), E> {
        let changing = self.engine().changing()?;
        self.engine().change_access(&changing, change)
    }

    /// Returns a sequence as an object to which there are rights.
    pub fn object_of_sequence(&self, sequence: &Sequence) -> Object {
        sequence.object()
    }

    /// Returns a table as an object to which there are rights.
    pub fn object_of(&self, table: &DynHandle) -> Object {
        self.engine().object_of(table)
    }
}
