//! Inputs of the seven transactions as plain data, and their generator.

use super::load::{byte, location};
use super::options::Keys;
use super::schema::{Number, START_TIMES, TYPES, number};
use crate::random::{n_text, nurand};
use seriatim::{Data, Rng};

/// Input of GET_SUBSCRIBER_DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct GetSubscriberDataInput {
    pub s_id: u32,
}

/// Input of GET_NEW_DESTINATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct GetNewDestinationInput {
    pub s_id: u32,
    pub sf_type: u8,
    /// Forwardings that start then or before.
    pub start_time: u8,
    /// And end after that.
    pub end_time: u8,
}

/// Input of GET_ACCESS_DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct GetAccessDataInput {
    pub s_id: u32,
    pub ai_type: u8,
}

/// Input of UPDATE_SUBSCRIBER_DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct UpdateSubscriberDataInput {
    pub s_id: u32,
    pub bit_1: bool,
    pub sf_type: u8,
    pub data_a: u8,
}

/// Input of UPDATE_LOCATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct UpdateLocationInput {
    pub sub_nbr: Number,
    pub vlr_location: u32,
}

/// Input of INSERT_CALL_FORWARDING.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct InsertCallForwardingInput {
    pub sub_nbr: Number,
    pub sf_type: u8,
    pub start_time: u8,
    pub end_time: u8,
    pub numberx: Number,
}

/// Input of DELETE_CALL_FORWARDING.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
#[allow(missing_docs, reason = "the columns are those of the description")]
pub struct DeleteCallForwardingInput {
    pub sub_nbr: Number,
    pub sf_type: u8,
    pub start_time: u8,
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    subscribers: u32,
    keys: Keys,
}

/// A of NURand by the number of subscribers.
fn nurand_a(subscribers: u32) -> u32 {
    match subscribers {
        0..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    }
}

impl Inputs {
    /// Inputs about subscribers `1..=subscribers`.
    pub fn new(rng: Rng, subscribers: u32, keys: Keys) -> Inputs {
        Inputs { rng, subscribers, keys }
    }

    /// The generator, for choices beside the inputs.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn s_id(&mut self) -> u32 {
        match self.keys {
            Keys::Skewed => nurand(&mut self.rng, nurand_a(self.subscribers), 0, 1, self.subscribers),
            Keys::Uniform => self.rng.range(1, self.subscribers.into()) as u32,
        }
    }

    /// A type of access information or special facility.
    fn kind(&mut self) -> u8 {
        self.rng.range(1, TYPES.into()) as u8
    }

    fn start_time(&mut self) -> u8 {
        START_TIMES[self.rng.below(START_TIMES.len() as u64) as usize]
    }

    fn end_time(&mut self) -> u8 {
        self.rng.range(1, 24) as u8
    }

    /// An input of GET_SUBSCRIBER_DATA.
    pub fn get_subscriber_data(&mut self) -> GetSubscriberDataInput {
        GetSubscriberDataInput { s_id: self.s_id() }
    }

    /// An input of GET_NEW_DESTINATION.
    pub fn get_new_destination(&mut self) -> GetNewDestinationInput {
        let (s_id, sf_type) = (self.s_id(), self.kind());
        GetNewDestinationInput { s_id, sf_type, start_time: self.start_time(), end_time: self.end_time() }
    }

    /// An input of GET_ACCESS_DATA.
    pub fn get_access_data(&mut self) -> GetAccessDataInput {
        GetAccessDataInput { s_id: self.s_id(), ai_type: self.kind() }
    }

    /// An input of UPDATE_SUBSCRIBER_DATA.
    pub fn update_subscriber_data(&mut self) -> UpdateSubscriberDataInput {
        let (s_id, sf_type) = (self.s_id(), self.kind());
        UpdateSubscriberDataInput { s_id, bit_1: self.rng.below(2) == 1, sf_type, data_a: byte(&mut self.rng) }
    }

    /// An input of UPDATE_LOCATION.
    pub fn update_location(&mut self) -> UpdateLocationInput {
        UpdateLocationInput { sub_nbr: number(self.s_id()), vlr_location: location(&mut self.rng) }
    }

    /// An input of INSERT_CALL_FORWARDING.
    pub fn insert_call_forwarding(&mut self) -> InsertCallForwardingInput {
        let (sub_nbr, sf_type) = (number(self.s_id()), self.kind());
        let (start_time, end_time) = (self.start_time(), self.end_time());
        InsertCallForwardingInput { sub_nbr, sf_type, start_time, end_time, numberx: n_text(&mut self.rng) }
    }

    /// An input of DELETE_CALL_FORWARDING.
    pub fn delete_call_forwarding(&mut self) -> DeleteCallForwardingInput {
        let (sub_nbr, sf_type) = (number(self.s_id()), self.kind());
        DeleteCallForwardingInput { sub_nbr, sf_type, start_time: self.start_time() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_are_skewed_as_the_description_asks() {
        assert_eq!([1, 1_000_000].map(nurand_a), [65_535; 2]);
        assert_eq!([1_000_001, 10_000_000].map(nurand_a), [1_048_575; 2]);
        assert_eq!(nurand_a(10_000_001), 2_097_151);
        let shares = |keys| {
            let mut inputs = Inputs::new(Rng::from_seed(9), 100_000, keys);
            let mut seen = vec![0u32; 100_001];
            (0..400_000).for_each(|_| seen[inputs.get_subscriber_data().s_id as usize] += 1);
            assert_eq!(seen[0], 0);
            seen.sort_unstable_by(|a, b| b.cmp(a));
            seen[..10_000].iter().sum::<u32>()
        };
        let (skewed, uniform) = (shares(Keys::Skewed), shares(Keys::Uniform));
        assert!(skewed > 2 * uniform, "the hottest tenth: {skewed} against {uniform} of 400,000");
    }
}
