//! The seven transactions: functions of the database and their input.
//!
//! A subscriber that is not there means a database loaded with other options, and fails. Any other row may be missing, and the
//! transaction is then [`Unsuccessful`].

use std::fmt;

use super::input::{
    DeleteCallForwardingInput, GetAccessDataInput, GetNewDestinationInput, GetSubscriberDataInput,
    InsertCallForwardingInput, UpdateLocationInput, UpdateSubscriberDataInput,
};
use super::schema::{CallForwarding, Number, START_TIMES, Subscriber, TYPES, Tables};
use crate::Missing;
use seriatim::{Abort, ReadTx, Text, Tx};

/// The failure that the description expects of a transaction: it found no row, or the row to insert exists or lacks its parent.
#[derive(Debug)]
pub struct Unsuccessful;

impl fmt::Display for Unsuccessful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no row qualifies")
    }
}

impl std::error::Error for Unsuccessful {}

/// All columns of a subscriber.
///
/// # Errors
/// A conflict where the protocol has no snapshots, or no such subscriber.
pub fn get_subscriber_data(tx: &ReadTx, tables: &Tables, input: &GetSubscriberDataInput) -> Result<Subscriber, Abort> {
    match tx.get(&tables.subscriber, &input.s_id)? {
        Some(subscriber) => Ok(subscriber.to_owned()),
        None => Err(tx.abort(Missing("subscriber"))),
    }
}

/// What GET_NEW_DESTINATION found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Numbers in use.
    pub count: u8,
    /// The numbers; those beyond `count` are empty.
    pub numbers: [Number; START_TIMES.len()],
}

/// Where calls of a subscriber go at a time, if the special facility is active. By the rules of population and inputs this
/// succeeds in 15 of 100 at the start; the description expects 23.9, which these rules do not give.
///
/// # Errors
/// [`Unsuccessful`] if nowhere; a conflict where the protocol has no snapshots.
pub fn get_new_destination(
    tx: &ReadTx,
    tables: &Tables,
    input: &GetNewDestinationInput,
) -> Result<Destinations, Abort> {
    let Some(facility) = tx.get(&tables.special_facility, &(input.s_id, input.sf_type))? else {
        return Err(tx.abort(Unsuccessful));
    };
    if !facility.is_active() {
        return Err(tx.abort(Unsuccessful));
    }
    let mut found = Destinations::default();
    let (first, last) = ((input.s_id, input.sf_type, 0), (input.s_id, input.sf_type, input.start_time));
    for forwarding in tx.scan(&tables.call_forwarding, first..=last).take(START_TIMES.len()) {
        let forwarding = forwarding?;
        if forwarding.end_time() > input.end_time {
            found.numbers[usize::from(found.count)] = Text::truncated(forwarding.numberx());
            found.count += 1;
        }
    }
    if found.count == 0 {
        return Err(tx.abort(Unsuccessful));
    }
    Ok(found)
}

/// What GET_ACCESS_DATA shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct AccessData {
    pub data1: u8,
    pub data2: u8,
    pub data3: Text<3>,
    pub data4: Text<5>,
}

/// Access information of a subscriber. Succeeds in 62.5 of 100.
///
/// # Errors
/// [`Unsuccessful`] if there is none of this type; a conflict where the protocol has no snapshots.
pub fn get_access_data(tx: &ReadTx, tables: &Tables, input: &GetAccessDataInput) -> Result<AccessData, Abort> {
    let Some(access) = tx.get(&tables.access_info, &(input.s_id, input.ai_type))? else {
        return Err(tx.abort(Unsuccessful));
    };
    Ok(AccessData {
        data1: access.data1(),
        data2: access.data2(),
        data3: Text::truncated(access.data3()),
        data4: Text::truncated(access.data4()),
    })
}

/// Changes a subscriber and one of its special facilities. Succeeds in 62.5 of 100.
///
/// # Errors
/// [`Unsuccessful`] if there is no special facility of this type; a conflict, or no such subscriber.
pub fn update_subscriber_data(tx: &Tx, tables: &Tables, input: &UpdateSubscriberDataInput) -> Result<(), Abort> {
    let subscriber = tx.update(&tables.subscriber, &input.s_id, |subscriber| subscriber.set_bit_1(input.bit_1))?;
    if subscriber.is_none() {
        return Err(tx.abort(Missing("subscriber")));
    }
    let key = (input.s_id, input.sf_type);
    let facility = tx.update(&tables.special_facility, &key, |facility| facility.set_data_a(input.data_a))?;
    if facility.is_none() {
        return Err(tx.abort(Unsuccessful));
    }
    Ok(())
}

/// Moves a subscriber, found by number.
///
/// # Errors
/// A conflict, or no such subscriber.
pub fn update_location(tx: &Tx, tables: &Tables, input: &UpdateLocationInput) -> Result<(), Abort> {
    let Some(subscriber) = tx.get_by(&tables.subscriber_by_number, &input.sub_nbr)? else {
        return Err(tx.abort(Missing("subscriber")));
    };
    tx.update(&tables.subscriber, &subscriber.s_id(), |subscriber| subscriber.set_vlr_location(input.vlr_location))?;
    Ok(())
}

/// Adds a call forwarding to a special facility of a subscriber, found by number. Succeeds in 31.25 of 100.
///
/// # Errors
/// [`Unsuccessful`] if the subscriber has no such special facility, or it has a forwarding at this time; a conflict, or no such
/// subscriber.
pub fn insert_call_forwarding(tx: &Tx, tables: &Tables, input: &InsertCallForwardingInput) -> Result<(), Abort> {
    let Some(subscriber) = tx.get_by(&tables.subscriber_by_number, &input.sub_nbr)? else {
        return Err(tx.abort(Missing("subscriber")));
    };
    let s_id = subscriber.s_id();
    let mut has_facility = false;
    for facility in tx.prefix(&tables.special_facility, &s_id).take(usize::from(TYPES)) {
        if facility?.sf_type() == input.sf_type {
            has_facility = true;
        }
    }
    let key = (s_id, input.sf_type, input.start_time);
    if !has_facility || tx.get(&tables.call_forwarding, &key)?.is_some() {
        return Err(tx.abort(Unsuccessful));
    }
    tx.insert(
        &tables.call_forwarding,
        &CallForwarding {
            s_id,
            sf_type: input.sf_type,
            start_time: input.start_time,
            end_time: input.end_time,
            numberx: input.numberx,
        },
    )
}

/// Removes a call forwarding of a subscriber, found by number. Succeeds in 31.25 of 100.
///
/// # Errors
/// [`Unsuccessful`] if there is none at this time; a conflict, or no such subscriber.
pub fn delete_call_forwarding(tx: &Tx, tables: &Tables, input: &DeleteCallForwardingInput) -> Result<(), Abort> {
    let Some(subscriber) = tx.get_by(&tables.subscriber_by_number, &input.sub_nbr)? else {
        return Err(tx.abort(Missing("subscriber")));
    };
    let key = (subscriber.s_id(), input.sf_type, input.start_time);
    if !tx.delete(&tables.call_forwarding, &key)? {
        return Err(tx.abort(Unsuccessful));
    }
    Ok(())
}
