"""Contexts made of files. An error names the file, the setting, and the remedy.

OpenSSL says "PEM lib" to most of what can be wrong with a file. So each file is looked at first.
Keys may be PKCS#8, PKCS#1 or SEC1, encrypted or not; what RocketMQ's servers read is PKCS#8.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError
from dledger.files import check_private, check_regular
from dledger.limits import TLS_FILE_BYTES_MAX
from dledger.tls.dates import Validity, first_validity
from dledger.tls.options import ClientAuth, Files
from dledger.world import unix_ms

_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_KEYS: Final = (
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----",
)
_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""Reasons of OpenSSL for a key of another pair, of the certificate's algorithm or of another."""
_TOO_WEAK: Final = ("KEY_TOO_SMALL", "MD_TOO_WEAK")
"""Ends of its reasons for what is too weak to be used."""
_ENCRYPTED: Final = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED")


def accepting_context(files: Files, client_auth: ClientAuth) -> ssl.SSLContext:
    """The context with which a server accepts connections. Raises ConfigError."""
    names = files.names
    if not files.certificate:
        raise ConfigError(f"TLS needs a certificate: set {names.certificate} and {names.key}")
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    # A ticket would have to be kept by clients, and made anew when keys change.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_own(context, files)
    if files.authorities:
        _load_authorities(context, files)
    if client_auth is not ClientAuth.NONE:
        if not files.authorities:
            raise ConfigError(
                f"clients' certificates can't be verified without {names.authorities}: set it to a "
                "file with the authorities that sign them"
            )
        needed = client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    return context


def dialling_context(
    files: Files, *, verify: bool = True, check_names: bool = True
) -> ssl.SSLContext:
    """The context with which a client dials. Raises ConfigError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify and check_names
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if files.authorities:
        _load_authorities(context, files)
    elif verify:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.certificate:
        _load_own(context, files)
    return context


def own_validity(files: Files) -> Validity | None:
    """How long an end's own certificate is valid; None if that is not known."""
    return first_validity(_text(files.certificate, files.names.certificate))


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def _load_own(context: ssl.SSLContext, files: Files) -> None:
    name, key_name = files.names.certificate, files.names.key
    text = _text(files.certificate, name)
    if _CERTIFICATE not in text:
        raise ConfigError(
            f"{name} {files.certificate} has no certificate in PEM in it{_other(text)}"
        )
    key_path = files.key or files.certificate
    key = _text(key_path, key_name, private=True)
    is_encrypted = any(mark in key for mark in _ENCRYPTED)
    if not is_encrypted and not any(mark in key for mark in _KEYS):
        raise ConfigError(f"{key_name} {key_path} has no private key in PEM in it{_other(key)}")
    if is_encrypted and not files.password:
        raise ConfigError(
            f"{key_name} {key_path} is encrypted: set {files.names.password}, or store it without "
            f"a password: openssl pkcs8 -topk8 -nocrypt -in {key_path} -out NEW"
        )
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(files.certificate, key_path, files.password or (lambda: ""))
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(_unusable(files, key_path, error, is_encrypted=is_encrypted)) from error


def _unusable(files: Files, key_path: str, error: Exception, *, is_encrypted: bool) -> str:
    name, key_name = files.names.certificate, files.names.key
    reason = getattr(error, "reason", None) or str(error)
    if reason in _MISMATCHES:
        return (
            f"the key in {key_name} {key_path} does not belong to the certificate in {name} "
            f"{files.certificate}: both must be of one pair, and the first certificate of "
            f"the file is "
            "the server's own"
        )
    if is_encrypted:
        return (
            f"{key_name} {key_path} can't be decrypted with {files.names.password}: the "
            f"password is "
            "wrong, or the encryption is one that OpenSSL 3 refuses (RC4, DES). Encrypt "
            "it anew: openssl "
            f"pkcs8 -topk8 -v2 aes256 -provider legacy -provider default -in {key_path} -out NEW"
        )
    if reason.endswith(_TOO_WEAK):
        return (
            f"{name} {files.certificate} can't be used: OpenSSL refuses its key or its hash as too "
            f"weak ({reason}): renew it with P-256, or RSA of 2048 bits, and SHA-256"
        )
    return (
        f"{name} {files.certificate} and {key_name} {key_path} can't be used: {reason}; "
        f"make sure that "
        "both are whole PEM files"
    )


def _load_authorities(context: ssl.SSLContext, files: Files) -> None:
    name = files.names.authorities
    text = _text(files.authorities, name)
    if _CERTIFICATE not in text:
        raise ConfigError(
            f"{name} {files.authorities} has no certificate in PEM in it{_other(text)}"
        )
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"{name} {files.authorities} can't be used: {reason}; make sure that each certificate "
            "in it is whole"
        ) from error


def _text(path: str, name: str, *, private: bool = False) -> str:
    """The text of a PEM file. A private one must not be for others to read. Raises ConfigError."""
    file = Path(path)
    try:
        found = file.stat()
        check_regular(f"{name} {path}", found.st_mode, "name a file in PEM")
        if found.st_size > TLS_FILE_BYTES_MAX:
            raise ConfigError(f"{name} {path} has {found.st_size} bytes: that is not a PEM file")
        if private:
            check_private(f"{name} {path}", path, found.st_mode)
        return file.read_bytes().decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{name} {path} can't be read: {error.strerror}") from error


def _other(text: str) -> str:
    """The content that a file has instead, as far as it is known, with the remedy."""
    if "-----BEGIN CERTIFICATE REQUEST" in text:
        return ", but a request for one: its authority has to sign that"
    if _CERTIFICATE in text:
        return ", but a certificate"
    if "PRIVATE KEY-----" in text:
        return ", but a private key"
    if text.startswith("0"):
        return (
            ": it is binary (DER or PKCS#12). openssl x509 -inform der, openssl pkey "
            "-inform der and "
            "openssl pkcs12 -nodes make PEM of it"
        )
    return ""


def problem_of(validity: Validity | None) -> str | None:
    """The fault of an end's own certificate today; None if it is valid."""
    now_s = unix_ms() / 1000
    if validity is None or validity.begins_s <= now_s <= validity.ends_s:
        return None
    return "has expired: renew it" if now_s > validity.ends_s else "is not valid yet"
