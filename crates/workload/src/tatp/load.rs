//! The population by the description. Each subscriber has one to four rows of access information and of special
//! facilities, each number equally likely. Each special facility has none to three call forwardings.

use std::sync::atomic::Ordering;

use super::Shared;
use super::options::Options;
use super::schema::{AccessInfo, CallForwarding, START_TIMES, SpecialFacility, Subscriber, TYPES, Tables, number};
use crate::random::n_text;
use crate::{LoadError, Loading, parallel};
use seriatim::{Database, Rng, Text};

/// Percent of special facilities that are active.
const ACTIVE_PERCENT: u64 = 85;

/// A subscriber with all that belongs to it.
struct Household {
    subscriber: Subscriber,
    access: Vec<AccessInfo>,
    facilities: Vec<SpecialFacility>,
    forwardings: Vec<CallForwarding>,
}

/// Fills the four tables, which are declared, and notes how many call forwardings were loaded.
pub(super) fn load(db: &Database, options: &Options, shared: &Shared, loading: &Loading<'_>) -> Result<(), LoadError> {
    let tables = Tables::open(db)?;
    let subscribers = u64::from(options.subscribers);
    // Means: 2.5 of access information, 2.5 of special facilities, 1.5 call forwardings for each of these.
    let counts = (subscribers, subscribers * 39 / 4);
    let make = |rng: &mut Rng, at: u64| {
        let household = household(rng, at as u32 + 1);
        shared.forwardings.fetch_add(household.forwardings.len() as i64, Ordering::Relaxed);
        household
    };
    parallel::populate(db, loading, counts, options.seed, make, |tx, household| {
        let Household { subscriber, access, facilities, forwardings } = household;
        tx.insert(&tables.subscriber, subscriber)?;
        access.iter().try_for_each(|row| tx.insert(&tables.access_info, row))?;
        facilities.iter().try_for_each(|row| tx.insert(&tables.special_facility, row))?;
        forwardings.iter().try_for_each(|row| tx.insert(&tables.call_forwarding, row))?;
        Ok((1 + access.len() + facilities.len() + forwardings.len()) as u64)
    })
}

fn household(rng: &mut Rng, s_id: u32) -> Household {
    let subscriber = subscriber(rng, s_id);
    let mut household = Household { subscriber, access: Vec::new(), facilities: Vec::new(), forwardings: Vec::new() };
    let mut types: [u8; TYPES as usize] = std::array::from_fn(|at| at as u8 + 1);
    let count = rng.range(1, TYPES.into()) as usize;
    rng.shuffle(&mut types);
    for &ai_type in &types[..count] {
        let (data1, data2) = (byte(rng), byte(rng));
        household.access.push(AccessInfo { s_id, ai_type, data1, data2, data3: capitals(rng), data4: capitals(rng) });
    }
    let count = rng.range(1, TYPES.into()) as usize;
    rng.shuffle(&mut types);
    for &sf_type in &types[..count] {
        let is_active = rng.percent(ACTIVE_PERCENT);
        let (error_cntrl, data_a) = (byte(rng), byte(rng));
        let data_b = capitals(rng);
        household.facilities.push(SpecialFacility { s_id, sf_type, is_active, error_cntrl, data_a, data_b });
        let mut starts = START_TIMES;
        let count = rng.range(0, START_TIMES.len() as u64) as usize;
        rng.shuffle(&mut starts);
        for &start_time in &starts[..count] {
            let end_time = start_time + rng.range(1, 8) as u8;
            household.forwardings.push(CallForwarding { s_id, sf_type, start_time, end_time, numberx: n_text(rng) });
        }
    }
    household
}

fn subscriber(rng: &mut Rng, s_id: u32) -> Subscriber {
    Subscriber {
        s_id,
        sub_nbr: number(s_id),
        bit_1: bit(rng),
        bit_2: bit(rng),
        bit_3: bit(rng),
        bit_4: bit(rng),
        bit_5: bit(rng),
        bit_6: bit(rng),
        bit_7: bit(rng),
        bit_8: bit(rng),
        bit_9: bit(rng),
        bit_10: bit(rng),
        hex_1: hex(rng),
        hex_2: hex(rng),
        hex_3: hex(rng),
        hex_4: hex(rng),
        hex_5: hex(rng),
        hex_6: hex(rng),
        hex_7: hex(rng),
        hex_8: hex(rng),
        hex_9: hex(rng),
        hex_10: hex(rng),
        byte2_1: byte(rng),
        byte2_2: byte(rng),
        byte2_3: byte(rng),
        byte2_4: byte(rng),
        byte2_5: byte(rng),
        byte2_6: byte(rng),
        byte2_7: byte(rng),
        byte2_8: byte(rng),
        byte2_9: byte(rng),
        byte2_10: byte(rng),
        msc_location: location(rng),
        vlr_location: location(rng),
    }
}

fn bit(rng: &mut Rng) -> bool {
    rng.below(2) == 1
}

fn hex(rng: &mut Rng) -> u8 {
    rng.below(16) as u8
}

/// A number of a byte.
pub(super) fn byte(rng: &mut Rng) -> u8 {
    rng.below(256) as u8
}

/// MSC_LOCATION or VLR_LOCATION: from 1 to 2^32 - 1.
pub(super) fn location(rng: &mut Rng) -> u32 {
    rng.range(1, u32::MAX.into()) as u32
}

/// N letters from A to Z.
fn capitals<const N: usize>(rng: &mut Rng) -> Text<N> {
    let letters: [u8; N] = std::array::from_fn(|_| b'A' + rng.below(26) as u8);
    Text::truncated(std::str::from_utf8(&letters).expect("letters are ASCII"))
}
