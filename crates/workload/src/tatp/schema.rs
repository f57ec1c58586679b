//! The four tables of TATP, with its column names.
//!
//! Tables reached by whole keys are hashed: subscribers, by number too, and access information. Special facilities and
//! call forwardings are also read by the first columns of their keys, so they are ordered. Integers of the description
//! have their narrowest type here: bits are booleans, hex digits and bytes a byte.

use seriatim::catalog::kind;
use seriatim::{Data, Database, Handle, IndexHandle, SchemaError, Table, Text};

/// A telephone number: 15 digits.
pub type Number = Text<15>;

/// SUBSCRIBER.
#[derive(Table, Data, Clone, Debug, PartialEq)]
#[table(name = "subscriber", key(s_id), hash)]
#[table(index(name = "by_number", columns(sub_nbr), unique, hash))]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct Subscriber {
    pub s_id: u32,
    pub sub_nbr: Number,
    pub bit_1: bool,
    pub bit_2: bool,
    pub bit_3: bool,
    pub bit_4: bool,
    pub bit_5: bool,
    pub bit_6: bool,
    pub bit_7: bool,
    pub bit_8: bool,
    pub bit_9: bool,
    pub bit_10: bool,
    pub hex_1: u8,
    pub hex_2: u8,
    pub hex_3: u8,
    pub hex_4: u8,
    pub hex_5: u8,
    pub hex_6: u8,
    pub hex_7: u8,
    pub hex_8: u8,
    pub hex_9: u8,
    pub hex_10: u8,
    pub byte2_1: u8,
    pub byte2_2: u8,
    pub byte2_3: u8,
    pub byte2_4: u8,
    pub byte2_5: u8,
    pub byte2_6: u8,
    pub byte2_7: u8,
    pub byte2_8: u8,
    pub byte2_9: u8,
    pub byte2_10: u8,
    pub msc_location: u32,
    pub vlr_location: u32,
}

/// ACCESS_INFO: up to four types for each subscriber.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "access_info", key(s_id, ai_type), hash)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct AccessInfo {
    pub s_id: u32,
    pub ai_type: u8,
    pub data1: u8,
    pub data2: u8,
    pub data3: Text<3>,
    pub data4: Text<5>,
}

/// SPECIAL_FACILITY: up to four types for each subscriber.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "special_facility", key(s_id, sf_type), ordered)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct SpecialFacility {
    pub s_id: u32,
    pub sf_type: u8,
    pub is_active: bool,
    pub error_cntrl: u8,
    pub data_a: u8,
    pub data_b: Text<5>,
}

/// CALL_FORWARDING: up to three start times for each special facility.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "call_forwarding", key(s_id, sf_type, start_time), ordered)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct CallForwarding {
    pub s_id: u32,
    pub sf_type: u8,
    pub start_time: u8,
    pub end_time: u8,
    pub numberx: Number,
}

/// Types of access information and of special facilities, from 1.
pub const TYPES: u8 = 4;
/// Hours at which a call forwarding may start.
pub const START_TIMES: [u8; 3] = [0, 8, 16];

const NUMBER_DIGITS: usize = 15;

/// SUB_NBR of a subscriber: the id in 15 digits.
pub fn number(s_id: u32) -> Number {
    let (mut digits, mut rest) = ([b'0'; NUMBER_DIGITS], s_id);
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    Text::truncated(std::str::from_utf8(&digits).expect("digits are ASCII"))
}

/// Handles of all tables and the index.
#[derive(Clone)]
#[allow(missing_docs, reason = "named as the tables")]
pub struct Tables {
    pub subscriber: Handle<Subscriber>,
    /// Subscribers by SUB_NBR.
    pub subscriber_by_number: IndexHandle<Subscriber, Number, kind::UniqueHash>,
    pub access_info: Handle<AccessInfo>,
    pub special_facility: Handle<SpecialFacility>,
    pub call_forwarding: Handle<CallForwarding>,
}

impl Tables {
    /// Creates all tables.
    ///
    /// # Errors
    /// When one exists with another definition.
    pub fn create(db: &Database) -> Result<Tables, SchemaError> {
        db.create_or_open::<Subscriber>()?;
        db.create_or_open::<AccessInfo>()?;
        db.create_or_open::<SpecialFacility>()?;
        db.create_or_open::<CallForwarding>()?;
        Tables::open(db)
    }

    /// Finds all tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        let subscriber = db.table::<Subscriber>()?;
        Ok(Tables {
            subscriber_by_number: subscriber.index(Subscriber::BY_NUMBER),
            subscriber,
            access_info: db.table()?,
            special_facility: db.table()?,
            call_forwarding: db.table()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_ids_in_fifteen_digits() {
        assert_eq!(&*number(1), "000000000000001");
        assert_eq!(&*number(u32::MAX), "000004294967295");
    }
}
