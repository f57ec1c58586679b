//! Columns that can be added to without reading them: whole numbers and decimals, whose sums do not depend on
//! the order.

use crate::{Column, ColumnLocation, ColumnType, Decimal, RowWriter};

/// A type of columns that can be added to.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` cannot be added to a column without reading it",
    note = "integers of at most 64 bits and decimals can, if they are not optional; for other columns, update the row"
)]
pub trait Addend: Column {
    /// How many of the column's units it is: 1, or for a decimal its last digit.
    fn units(self) -> i128;
}

macro_rules! integers {
    ($($type:ty)+) => {$(
        impl Addend for $type {
            #[inline(always)]
            fn units(self) -> i128 {
                i128::from(self)
            }
        }
    )+};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl<const S: u32> Addend for Decimal<S> {
    #[inline(always)]
    fn units(self) -> i128 {
        i128::from(Decimal::units(self))
    }
}

impl RowWriter<'_> {
    /// Adds units to the column at `place`, which is of type `ty`; whether the sum is one of that type. If
    /// not, the column stays.
    ///
    /// # Panics
    /// If a column of type `ty` cannot be added to.
    #[must_use]
    pub fn add(&mut self, ty: ColumnType, place: &ColumnLocation, units: i128) -> bool {
        match ty {
            ColumnType::I8 => self.add_to::<i8>(place, units),
            ColumnType::I16 => self.add_to::<i16>(place, units),
            ColumnType::I32 => self.add_to::<i32>(place, units),
            // A decimal is stored as its units.
            ColumnType::I64 | ColumnType::Decimal { .. } => self.add_to::<i64>(place, units),
            ColumnType::U8 => self.add_to::<u8>(place, units),
            ColumnType::U16 => self.add_to::<u16>(place, units),
            ColumnType::U32 => self.add_to::<u32>(place, units),
            ColumnType::U64 => self.add_to::<u64>(place, units),
            other => panic!("a column of type {other:?} cannot be added to"),
        }
    }

    #[inline(always)]
    fn add_to<C>(&mut self, place: &ColumnLocation, units: i128) -> bool
    where
        C: for<'a> Column<Ref<'a> = C, Set<'a> = C> + Addend + TryFrom<i128>,
    {
        let Some(sum) = self.get::<C>(place).units().checked_add(units) else { return false };
        // A number is stored without memory of its own.
        C::try_from(sum).is_ok_and(|sum| self.set::<C>(place, sum).is_ok())
    }
}
