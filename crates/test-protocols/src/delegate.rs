//! The methods that protocols for tests delegate to the protocol that they alter.

/// Methods of [`Worker`](seriatim_txn::Worker) that call the same method of `self.inner`: the listed ones, and
/// those that no protocol for tests alters.
macro_rules! delegate {
    ($(fn $($method:tt)*)?) => {
        delegate! { each
            fn begin_whole(&mut self, partitions: seriatim_txn::PartitionSet);
            fn reserve_next(&mut self);
            fn prefetch(
                &mut self,
                table: &seriatim_txn::Table,
                key: seriatim_catalog::Key<'_>,
                columns: seriatim_catalog::ColumnSet
            );
            fn advance_prefetch(&mut self);
            fn stage(&mut self, table: &seriatim_txn::Table) -> Result<seriatim_txn::Staged, seriatim_txn::OpError>;
            fn discard(&mut self, table: &seriatim_txn::Table, staged: seriatim_txn::Staged);
            fn out_of_line(&mut self, bytes: &[u8]) -> Result<u64, seriatim_memory::OutOfMemory>;
            fn out_of_line_room(&mut self, bytes: usize) -> Result<u64, seriatim_memory::OutOfMemory>;
            fn seen(&self) -> seriatim_txn::Seen;
            fn newest(&self) -> seriatim_base::Tid;
            fn savepoint(&self) -> seriatim_txn::Savepoint;
            fn rollback_to(&mut self, savepoint: seriatim_txn::Savepoint);
            fn validate(&mut self) -> Result<(), seriatim_txn::OpError>;
            fn writes(&self) -> bool;
            fn conflict_info(&self) -> Option<&seriatim_txn::ConflictInfo>;
            fn collect_garbage(&mut self, most: usize);
            fn rest(&mut self);
            fn core(&mut self) -> &mut seriatim_txn::Core;
            fn wait_max(&self) -> std::time::Duration;
            fn detach(&mut self) -> Option<&mut dyn seriatim_txn::Detach>;
            $(fn $($method)*)?
        }
    };
    (each) => {};
    (each fn $name:ident(&$this:ident $(, $given:ident: $type:ty)*) $(-> $result:ty)?; $($more:tt)*) => {
        fn $name(&$this $(, $given: $type)*) $(-> $result)? {
            $this.inner.$name($($given),*)
        }
        delegate! { each $($more)* }
    };
    (each fn $name:ident(&mut $this:ident $(, $given:ident: $type:ty)*) $(-> $result:ty)?; $($more:tt)*) => {
        fn $name(&mut $this $(, $given: $type)*) $(-> $result)? {
            $this.inner.$name($($given),*)
        }
        delegate! { each $($more)* }
    };
}
pub(crate) use delegate;
