//! What a server stores of a password.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

/// How often a password is hashed, as in PostgreSQL.
pub const ITERATIONS: u32 = 4096;
/// Bytes of a salt, as in PostgreSQL.
const SALT_BYTES: usize = 16;
/// Bytes of a key: those of SHA-256.
pub(crate) const KEY_BYTES: usize = 32;
/// What the text of a verifier begins with.
const PREFIX: &str = "SCRAM-SHA-256$";

/// What a server stores of a password.
///
/// Its text is PostgreSQL's: `SCRAM-SHA-256$4096:salt$stored key:server key`, the last three in Base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: [u8; KEY_BYTES],
    pub(crate) server_key: [u8; KEY_BYTES],
}

impl Verifier {
    /// The verifier of a password, with a new salt.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn new(password: &str) -> Verifier {
        Verifier::with_salt(password, random::<SALT_BYTES>().to_vec(), ITERATIONS)
    }

    /// The verifier of a password with this salt.
    pub(crate) fn with_salt(password: &str, salt: Vec<u8>, iterations: u32) -> Verifier {
        let mut salted = [0; KEY_BYTES];
        let count = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, count, &salt, prepared(password).as_bytes(), &mut salted);
        let stored_key = hash(&hmac(&salted, b"Client Key"));
        Verifier { iterations: count.get(), salt, stored_key, server_key: hmac(&salted, b"Server Key") }
    }

    /// A verifier that no password has. Its salt depends on the name and the secret alone.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn mock(user: &str, secret: &[u8]) -> Verifier {
        let salt = hmac(secret, user.as_bytes())[..SALT_BYTES].to_vec();
        Verifier { iterations: ITERATIONS, salt, stored_key: random(), server_key: random() }
    }

    /// Whether it is that of a password.
    pub fn is_of(&self, password: &str) -> bool {
        let other = Verifier::with_salt(password, self.salt.clone(), self.iterations);
        is_same(&other.stored_key, &self.stored_key)
    }
}

/// A password as it is hashed: texts that look alike are one (SASLprep). One that cannot be prepared counts as it is,
/// as in PostgreSQL.
fn prepared(password: &str) -> std::borrow::Cow<'_, str> {
    stringprep::saslprep(password).unwrap_or(std::borrow::Cow::Borrowed(password))
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

pub(crate) fn hmac(key: &[u8], text: &[u8]) -> [u8; KEY_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    tag.as_ref().try_into().expect("a tag of SHA-256 has 32 bytes")
}

pub(crate) fn hash(bytes: &[u8]) -> [u8; KEY_BYTES] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("a hash of SHA-256 has 32 bytes")
}

/// Compares in a time that does not depend on the bytes.
pub(crate) fn is_same(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b))) == 0
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "{PREFIX}{}:{salt}${stored}:{server}", self.iterations)
    }
}

/// The text of a verifier, as PostgreSQL reads it.
impl FromStr for Verifier {
    type Err = ();

    fn from_str(text: &str) -> Result<Verifier, ()> {
        let (first, keys) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('$')).ok_or(())?;
        let ((iterations, salt), (stored, server)) = first.split_once(':').zip(keys.split_once(':')).ok_or(())?;
        let iterations = iterations.parse().ok().filter(|count| (1..=i32::MAX as u32).contains(count)).ok_or(())?;
        let key = |text: &str| STANDARD.decode(text).map_err(drop)?.try_into().map_err(drop);
        let salt = STANDARD.decode(salt).map_err(drop)?;
        Ok(Verifier { iterations, salt, stored_key: key(stored)?, server_key: key(server)? })
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}
