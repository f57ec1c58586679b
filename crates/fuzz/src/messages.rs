//! Messages of the PostgreSQL protocol: what decodes encodes to the same bytes, and the first packet of a session has
//! parameters or is refused.
//!
//! Input: the number of a type, then the body of a message or packet.

use seriatim_wire::message::{self, Layout};
use seriatim_wire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use seriatim_wire::messages::response::{CommandComplete, ErrorResponse};
use seriatim_wire::messages::simplequery::Query;
use seriatim_wire::messages::startup::ParameterStatus;
use seriatim_wire::startup;

use crate::allocation;

/// A function for each type that is decoded anywhere.
const TYPES: &[fn(&[u8])] = &[
    run_as::<Query>,
    run_as::<Parse>,
    run_as::<Bind>,
    run_as::<Describe>,
    run_as::<Close>,
    run_as::<Execute>,
    run_as::<CommandComplete>,
    run_as::<ParameterStatus>,
    run_as::<ErrorResponse>,
    run_as_packet,
];

pub(crate) fn run(data: &[u8]) {
    let Some((&number, body)) = data.split_first() else { return };
    let run = TYPES[usize::from(number) % TYPES.len()];
    allocation::within(16 * data.len() + (4 << 10), || run(body));
}

fn run_as<M: Layout>(body: &[u8]) {
    let tag = M::message_type().expect("only first packets have no tag");
    let length = u32::try_from(body.len() + 4).expect("inputs are short").to_be_bytes();
    let bytes = [&[tag][..], &length, body].concat();
    // Text that is not UTF-8 is replaced.
    if let Ok(message) = message::decode::<M>(&bytes)
        && std::str::from_utf8(body).is_ok()
    {
        assert_eq!(message::encode(&message), bytes, "what decodes encodes to the same bytes");
    }
}

fn run_as_packet(body: &[u8]) {
    let packet = [&[0; 4], body].concat();
    for name in ["user", "database", "replication"] {
        if let Ok(Some(value)) = startup::parameter(&packet, name) {
            let pair = [name.as_bytes(), b"\0", value, b"\0"].concat();
            assert!(body.windows(pair.len()).any(|window| window == pair), "a value comes behind its name");
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let values = vec![Some(b"\0\0\0\x05"[..].into()), None, Some(b""[..].into())];
    let bodies = [
        message::encode(&Query::new("select 1".into())),
        message::encode(&Parse::new(Some("s".into()), "select $1".into(), vec![23])),
        message::encode(&Bind::new(None, Some("s".into()), vec![1, 0, 1], values, vec![1])),
        message::encode(&Describe::new(b'S', Some("s".into()))),
        message::encode(&Close::new(b'P', None)),
        message::encode(&Execute::new(None, 7)),
        message::encode(&CommandComplete::new("INSERT 0 1".into())),
        message::encode(&ParameterStatus::new("client_encoding".into(), "UTF8".into())),
        message::encode(&ErrorResponse::new(vec![(b'S', "ERROR".into()), (b'C', "40001".into())])),
        b"-----\0\x03\0\0user\0me\0database\0mine\0\0"[..].into(),
    ];
    (0..).zip(bodies).map(|(number, message)| [&[number][..], &message[5..]].concat()).collect()
}
