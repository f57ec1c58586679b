//! TLS at either end of a connection, by rustls, with certificates as `sslmode` has them.
//!
//! What `sslmode` means is libpq's (PostgreSQL 15 documentation, §34.19.1): `require` encrypts and asks for no
//! certificate that anybody signed, `verify-ca` asks for one, `verify-full` for one that names the host. A
//! channel that ends here cannot be bound to one that begins here: SCRAM-SHA-256-PLUS is not for programs in
//! between.

use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Stream;

/// What is asked of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Nothing: the connection is encrypted, with whom is not known.
    Nothing,
    /// That one of the roots signed it.
    Chain,
    /// That, and that it names the host.
    ChainAndName,
}

/// The server's end of TLS.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

/// The client's end of TLS.
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
    /// Of a certificate, with those that signed it, and its key: PEM.
    ///
    /// # Errors
    /// When there is no certificate or no key in them, or the two do not belong together.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Acceptor, String> {
        let certificates = certificates_of(certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("no private key in PEM: {error}"))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
            .map_err(|error| error.to_string())?;
        Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
    }

    /// The client's half of the handshake is awaited.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn accept(&self, stream: Stream) -> std::io::Result<Stream> {
        Ok(Box::new(self.0.accept(stream).await?))
    }
}

impl Connector {
    /// With the roots in these bytes (PEM), where certificates are verified.
    ///
    /// # Errors
    /// When certificates are to be verified and there is no root.
    pub fn new(verify: Verify, roots: Option<&[u8]>) -> Result<Connector, String> {
        let provider = provider();
        let verifier: Arc<dyn ServerCertVerifier> = match verify {
            Verify::Nothing => Arc::new(Lenient { provider: Arc::clone(&provider), chain: None }),
            Verify::Chain | Verify::ChainAndName => {
                let mut store = RootCertStore::empty();
                for root in certificates_of(roots.ok_or("certificates are to be verified, and there is no root")?)? {
                    store.add(root).map_err(|error| format!("a root certificate that cannot be used: {error}"))?;
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

    /// Goes through the handshake with a server that is called so.
    ///
    /// # Errors
    /// When the handshake fails, or the server's certificate is not what was asked for.
    pub async fn connect(&self, host: &str, stream: Stream) -> std::io::Result<Stream> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        Ok(Box::new(self.0.connect(name, stream).await?))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| format!("no certificate in PEM: {error}"))?;
    if certificates.is_empty() { Err("no certificate in PEM".into()) } else { Ok(certificates) }
}

/// Asks for less than the name: for a chain, or for nothing but that the server has the key of the certificate
/// that it shows.
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
            // The name is looked at last.
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
