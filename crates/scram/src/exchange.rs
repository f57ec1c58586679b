//! The server's side of a log-in.
//!
//! ```text
//! client                              server
//! n,,n=,r=NONCE                 →
//!                               ←     r=NONCE…,s=SALT,i=COUNT
//! c=BINDING,r=NONCE…,p=PROOF    →
//!                               ←     v=SIGNATURE
//! ```
//! With channel binding the client begins with `p=tls-server-end-point` instead of `n`, and `BINDING` has the hash of
//! the server's certificate. A client that sends `y` could bind and believes that the server could not. If the server
//! can, somebody between them has hidden it, and the log-in fails (RFC 5802, §6).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::verifier::{KEY_BYTES, Verifier, hash, hmac, is_same, random};

/// The bytes of the server's part of the nonce, before Base64.
const NONCE_BYTES: usize = 18;
/// The most bytes of a message of the client that is looked at.
const MESSAGE_BYTES_MAX: usize = 4096;

/// How a client proves that it knows its password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Without channel binding.
    Plain,
    /// With it: the proof is worth nothing in another TLS connection.
    Bound,
}

impl Mechanism {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "SCRAM-SHA-256",
            Mechanism::Bound => "SCRAM-SHA-256-PLUS",
        }
    }
}

/// What follows a message of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This is sent, and another message is expected.
    Continue(Vec<u8>),
    /// This is sent, and the client is whom it says.
    Done(Vec<u8>),
}

/// Why a log-in fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A message is not of the protocol.
    Malformed(&'static str),
    /// Somebody may be between client and server.
    Binding(&'static str),
    /// The password is another one, or there is no such user.
    Password,
    /// Something that the server does not have.
    Unsupported(&'static str),
}

/// One log-in.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    mechanism: Mechanism,
    /// The hash of the server's certificate, if it could bind.
    end_point: Option<Vec<u8>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Begun,
    /// What the client must repeat and prove.
    Challenged {
        header: Vec<u8>,
        nonce: String,
        first: String,
    },
    Ended,
}

impl Exchange {
    /// Begins a log-in. `end_point` is the hash of the server's certificate, if the connection has TLS and the hash is
    /// defined.
    pub fn new(verifier: Verifier, mechanism: Mechanism, end_point: Option<Vec<u8>>) -> Exchange {
        Exchange { verifier, mechanism, end_point, state: State::Begun }
    }

    /// Acts on a message of the client.
    ///
    /// # Errors
    /// The log-in has failed.
    pub fn step(&mut self, message: &[u8]) -> Result<Step, Refusal> {
        let message = (message.len() <= MESSAGE_BYTES_MAX).then(|| std::str::from_utf8(message).ok()).flatten();
        let message = message.ok_or(Refusal::Malformed("a message is too long, or not UTF-8"))?;
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Begun => self.first(message),
            State::Challenged { header, nonce, first } => self.last(message, &header, &nonce, &first),
            State::Ended => Err(Refusal::Malformed("the log-in has ended")),
        }
    }

    fn first(&mut self, message: &str) -> Result<Step, Refusal> {
        let (flag, rest) = message.split_once(',').ok_or(Refusal::Malformed("the channel-binding flag has no end"))?;
        match (flag, self.mechanism) {
            ("n", Mechanism::Plain) => {}
            ("y", Mechanism::Plain) if self.end_point.is_some() => {
                return Err(Refusal::Binding(
                    "The client supports SCRAM channel binding but thinks the server does not.  However, this server \
                     does support channel binding.",
                ));
            }
            ("y", Mechanism::Plain) => {}
            ("p=tls-server-end-point", Mechanism::Bound) => {}
            ("n" | "y", Mechanism::Bound) => {
                return Err(Refusal::Malformed(
                    "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding \
                     data.",
                ));
            }
            (flag, Mechanism::Plain) if flag.starts_with("p=") => {
                return Err(Refusal::Malformed(
                    "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes \
                     channel binding data.",
                ));
            }
            (flag, Mechanism::Bound) if flag.starts_with("p=") => {
                return Err(Refusal::Unsupported("channel binding is that of tls-server-end-point"));
            }
            _ => return Err(Refusal::Malformed("the channel-binding flag is none of n, y and p")),
        }
        let (identity, bare) = rest.split_once(',').ok_or(Refusal::Malformed("the identity has no end"))?;
        if !identity.is_empty() {
            return Err(Refusal::Unsupported("the client wants to act as somebody else"));
        }
        if bare.starts_with("m=") {
            return Err(Refusal::Unsupported("the client requires an extension of SCRAM"));
        }
        let mut parts = bare.split(',');
        // The user is that of the session's first packet.
        parts.next().and_then(|part| part.strip_prefix("n=")).ok_or(Refusal::Malformed("the user is missing"))?;
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        let nonce = nonce.filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic()));
        let nonce = nonce.ok_or(Refusal::Malformed("the nonce is missing, or not printable"))?;
        let nonce = format!("{nonce}{}", STANDARD.encode(random::<NONCE_BYTES>()));
        let challenge = format!("r={nonce},s={},i={}", STANDARD.encode(&self.verifier.salt), self.verifier.iterations);
        let header = format!("{flag},{identity},").into_bytes();
        self.state = State::Challenged { header, nonce, first: format!("{bare},{challenge}") };
        Ok(Step::Continue(challenge.into_bytes()))
    }

    fn last(&self, message: &str, header: &[u8], nonce: &str, first: &str) -> Result<Step, Refusal> {
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(Refusal::Malformed("the proof is missing"))?;
        let mut parts = without_proof.split(',');
        let binding = parts.next().and_then(|part| part.strip_prefix("c="));
        let binding = binding.ok_or(Refusal::Malformed("the channel binding is missing"))?;
        let own = match (self.mechanism, &self.end_point) {
            (Mechanism::Bound, Some(end_point)) => [header, end_point].concat(),
            _ => header.to_vec(),
        };
        if binding != STANDARD.encode(own) {
            return Err(match self.mechanism {
                Mechanism::Bound => Refusal::Binding("SCRAM channel binding check failed"),
                Mechanism::Plain => Refusal::Malformed("the channel binding is another than that of the begin"),
            });
        }
        if parts.next().and_then(|part| part.strip_prefix("r=")) != Some(nonce) {
            return Err(Refusal::Malformed("Nonce does not match."));
        }
        let proof: [u8; KEY_BYTES] = STANDARD
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or(Refusal::Malformed("the proof is not 32 bytes in Base64"))?;
        let all = format!("{first},{without_proof}");
        let signature = hmac(&self.verifier.stored_key, all.as_bytes());
        let client_key: [u8; KEY_BYTES] = std::array::from_fn(|at| proof[at] ^ signature[at]);
        let answer = format!("v={}", STANDARD.encode(hmac(&self.verifier.server_key, all.as_bytes())));
        match is_same(&hash(&client_key), &self.verifier.stored_key) {
            true => Ok(Step::Done(answer.into_bytes())),
            false => Err(Refusal::Password),
        }
    }
}
