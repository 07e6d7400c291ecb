"""An authority of one's own, and the certificates that it signs: for local clusters and tests.

Keys are of the curve P-256: to sign with one takes a server 0.1 ms, with RSA 1 ms. Files are PEM,
keys PKCS#8 without a password, as RocketMQ's Java reads them too; keys are their user's alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dledger.files import replace
from dledger.limits import TLS_AUTHORITY_DAYS, TLS_CERTIFICATE_DAYS


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, certificate: Path, key: Path) -> None:
        """Write both; each file is replaced whole, the key first."""
        replace(key, self.key)
        replace(certificate, self.certificate)


class Authority:
    """An authority that signs certificates as long as its key is at hand."""

    def __init__(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey):
        self.name = name
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, name: str) -> Authority:
        """Make an authority of this name: a new key, and a certificate that it signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject, now = _named(name), datetime.now(UTC)
        certificate = (
            _begun(subject, subject, key, now, now + timedelta(days=TLS_AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(name, certificate, key)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Authority:
        """An authority that was written to files."""
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        (named,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey), "written by `make`"
        return cls(str(named.value), found, loaded)

    @property
    def pair(self) -> Pair:
        """The authority's certificate, which others trust, and its key, which nobody else may
        have."""
        return Pair(_pem(self._certificate), _key_pem(self._key))

    def sign(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        valid_from: datetime | None = None,
        days: float = TLS_CERTIFICATE_DAYS,
    ) -> Pair:
        """A certificate for a server at these hosts and addresses, or for a client without any."""
        key = ec.generate_private_key(ec.SECP256R1())
        begins = valid_from or datetime.now(UTC) - timedelta(hours=1)
        issuer = self._certificate.subject
        builder = (
            _begun(_named(name), issuer, key, begins, begins + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
