//! TLS at either end of a connection, with rustls and the meanings of `sslmode`.
//!
//! The meanings are those of libpq (PostgreSQL 15 documentation, §34.19.1). `require` encrypts and accepts any
//! certificate, `verify-ca` verifies its chain, `verify-full` also verifies the host name. A proxy has two TLS
//! channels, so it cannot support channel binding (SCRAM-SHA-256-PLUS).

use std::sync::Arc;

use ring::digest;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Stream;

/// The checks of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// None: the connection is encrypted, but the peer may be anyone.
    Nothing,
    /// A trusted root must have signed it.
    Chain,
    /// A trusted root must have signed it, and it must name the host.
    ChainAndName,
}

/// The server's side of TLS.
#[derive(Clone)]
pub struct Acceptor {
    tls: TlsAcceptor,
    end_point: Option<Arc<[u8]>>,
}

/// The name by which the protocol is chosen in a handshake.
const PROTOCOL: &[u8] = b"postgresql";

/// The client's side of TLS.
#[derive(Clone)]
pub struct Connector(TlsConnector);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl Acceptor {
    /// An acceptor with a certificate chain and its key, both PEM.
    ///
    /// # Errors
    /// When the certificate or the key is missing, or they do not match.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Acceptor, String> {
        let certificates = certificates_of(certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("no private key in PEM: {error}"))?;
        let end_point = certificates.first().and_then(|own| end_point(own)).map(Into::into);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Acceptor { tls: TlsAcceptor::from(Arc::new(config)), end_point })
    }

    /// The hash of the certificate that binds SCRAM to the connection (`tls-server-end-point`, RFC 5929, §4). None if
    /// the certificate's signature has no hash.
    pub fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    /// Performs the server's side of the handshake.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn accept(&self, stream: Stream) -> std::io::Result<Stream> {
        Ok(Box::new(self.tls.accept(stream).await?))
    }

    /// As [`Acceptor::accept`], for a client that has not asked for TLS first. It must name the protocol, so that no
    /// other protocol is taken for it.
    ///
    /// # Errors
    /// When the handshake fails, or does not name the protocol.
    pub async fn accept_direct(&self, stream: Stream) -> std::io::Result<Stream> {
        let accepted = self.tls.accept(stream).await?;
        match accepted.get_ref().1.alpn_protocol() {
            Some(PROTOCOL) => Ok(Box::new(accepted)),
            _ => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "TLS without the protocol's name")),
        }
    }
}

/// The hash of a certificate, by the algorithm of its signature; SHA-256 if that is MD5 or SHA-1.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // A certificate is a sequence of what is signed, the algorithm, and the signature.
    let (_, certificate_body, _) = element(certificate)?;
    let (_, _, rest) = element(certificate_body)?;
    let (_, algorithm, _) = element(rest)?;
    let (0x06, object, _) = element(algorithm)? else { return None };
    let hash = match object {
        // RSA (1.2.840.113549.1.1): MD5, SHA-1, SHA-256, SHA-384, SHA-512.
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 4 | 5 | 11] => &digest::SHA256,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 12] => &digest::SHA384,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 13] => &digest::SHA512,
        // ECDSA (1.2.840.10045.4): SHA-1, SHA-256, SHA-384, SHA-512.
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 2] => &digest::SHA256,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 3] => &digest::SHA384,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 4] => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

/// The tag and the contents of the element of DER at the front, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

impl Connector {
    /// A connector with the root certificates in `roots` (PEM), if certificates are verified.
    ///
    /// # Errors
    /// When certificates are verified and there is no root certificate.
    pub fn new(verify: Verify, roots: Option<&[u8]>) -> Result<Connector, String> {
        let provider = provider();
        let verifier: Arc<dyn ServerCertVerifier> = match verify {
            Verify::Nothing => Arc::new(Lenient { provider: Arc::clone(&provider), chain: None }),
            Verify::Chain | Verify::ChainAndName => {
                let mut store = RootCertStore::empty();
                for root in
                    certificates_of(roots.ok_or("verifying certificates needs root certificates, but there are none")?)?
                {
                    store.add(root).map_err(|error| format!("unusable root certificate: {error}"))?;
                }
                let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider));
                let chain = chain.build().map_err(|error| error.to_string())?;
                match verify {
                    Verify::Chain => Arc::new(Lenient { provider: Arc::clone(&provider), chain: Some(chain) }),
                    _ => chain,
                }
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }

    /// Performs the handshake with a server of this name.
    ///
    /// # Errors
    /// When the handshake fails, or the server's certificate does not pass the checks.
    pub async fn connect(&self, host: &str, stream: Stream) -> std::io::Result<Stream> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        Ok(Box::new(self.0.connect(name, stream).await?))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

fn certificates_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| format!("no certificate in PEM: {error}"))?;
    if certificates.is_empty() { Err("no certificate in PEM".into()) } else { Ok(certificates) }
}

/// Verifies less than the host name: only the chain, or only that the server has the key of its certificate.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, response, now) {
            // The host name is verified last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        text: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(text, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        text: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(text, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
