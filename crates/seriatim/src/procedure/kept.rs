//! Columns that outlive their rows: a row ends with its transaction, and a procedure may continue.
//!
//! Generated code copies the columns that the body reads, each by [`Keep`]. It then reads them as it would read the
//! row: [`Kept::show`] returns the same type as the row's getter.

use seriatim_catalog::{Decimal, Timestamp};

/// The value that a row's getter returns.
pub trait Keep: Copy {
    /// The owned form of the value.
    type Kept: Kept;
    /// Copies the value that the row lends.
    fn keep(self) -> Self::Kept;
}

/// A column's value that outlives its row.
pub trait Kept {
    /// The value that the row's getter returns.
    type Ref<'k>
    where
        Self: 'k;
    /// The value, or a reference to it.
    fn show(&self) -> Self::Ref<'_>;
}

/// A row in the form in which generated code keeps it.
#[inline(always)]
pub fn kept<R, K>(row: R, keep: impl FnOnce(R) -> K) -> K {
    keep(row)
}

macro_rules! by_value {
    ($([$($parameters:tt)*] $type:ty;)+) => {$(
        impl<$($parameters)*> Keep for $type {
            type Kept = $type;
            #[inline(always)]
            fn keep(self) -> $type {
                self
            }
        }

        impl<$($parameters)*> Kept for $type {
            type Ref<'k> = $type;
            #[inline(always)]
            fn show(&self) -> $type {
                *self
            }
        }
    )+};
}

by_value! {
    [] bool;
    [] i8;
    [] i16;
    [] i32;
    [] i64;
    [] u8;
    [] u16;
    [] u32;
    [] u64;
    [] f64;
    [] Timestamp;
    [const S: u32] Decimal<S>;
    [const N: usize] [u8; N];
}

macro_rules! scalars {
    ($($type:ty)+) => { by_value! { $([] $type;)+ } };
}

seriatim_catalog::for_scalars!(scalars);

macro_rules! by_reference {
    ($($type:ty),+) => {$(
        impl Keep for &$type {
            type Kept = Box<$type>;
            #[inline]
            fn keep(self) -> Box<$type> {
                self.into()
            }
        }

        impl Kept for Box<$type> {
            type Ref<'k> = &'k $type;
            #[inline(always)]
            fn show(&self) -> &$type {
                self
            }
        }
    )+};
}

by_reference!(str, [u8]);

impl<C: Keep> Keep for Option<C> {
    type Kept = Option<C::Kept>;
    #[inline]
    fn keep(self) -> Self::Kept {
        self.map(C::keep)
    }
}

impl<C: Kept> Kept for Option<C> {
    type Ref<'k>
        = Option<C::Ref<'k>>
    where
        C: 'k;
    #[inline]
    fn show(&self) -> Option<C::Ref<'_>> {
        self.as_ref().map(C::show)
    }
}
