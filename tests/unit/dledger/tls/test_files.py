"""TLS files that can't be used are refused, with the file, the setting and the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dledger.errors import ConfigError
from dledger.testing.certificates import authority, files, pair
from dledger.tls.dates import first_validity
from dledger.tls.files import accepting_context, dialling_context, own_validity, problem_of
from dledger.tls.options import ClientAuth, Files, Tls

CERT, KEY, CA = "tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"


def key_in(form: str, password: bytes = b"") -> bytes:
    """The server's key, written another way."""
    loaded = serialization.load_pem_private_key(pair().key, None)
    encryption: serialization.KeySerializationEncryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    forms = {
        "PKCS8": serialization.PrivateFormat.PKCS8,
        "SEC1": serialization.PrivateFormat.TraditionalOpenSSL,
    }
    return loaded.private_bytes(serialization.Encoding.PEM, forms[form], encryption)  # type: ignore[union-attr]


def rsa_key() -> bytes:
    """A key of RSA; certificates of tests have P-256."""
    return rsa.generate_private_key(65_537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def put(path: str, data: bytes) -> None:
    """Write a file that is its user's alone."""
    Path(path).write_bytes(data)
    Path(path).chmod(0o600)


def make_anew(path: str, make: Callable[[str], object]) -> None:
    """Replace a file by something else."""
    Path(path).unlink()
    make(path)


SPOILED: dict[str, tuple[Callable[[Files], object], str]] = {
    "no certificate file": (lambda f: Path(f.certificate).unlink(), f"{CERT} .* can't be read: No"),
    "no key file": (lambda f: Path(f.key).unlink(), f"{KEY} .* can't be read: No such file"),
    "no authorities' file": (lambda f: Path(f.authorities).unlink(), f"{CA} .* can't be read"),
    "an empty certificate": (lambda f: put(f.certificate, b""), f"{CERT} .* no certificate in PEM"),
    "a key as certificate": (
        lambda f: put(f.certificate, pair().key),
        f"{CERT} .* no certificate in PEM in it, but a private key",
    ),
    "a certificate as key": (
        lambda f: put(f.key, pair().certificate),
        f"{KEY} .* no private key in PEM in it, but a certificate",
    ),
    "a binary key": (
        lambda f: put(f.key, b"0\x82\x01\x02abc"),
        f"{KEY} .*openssl pkey -inform der",
    ),
    "another's key": (
        lambda f: put(f.key, pair(days=31).key),
        f"the key in {KEY} .* does not belong to the certificate in {CERT}",
    ),
    "a key of another algorithm": (
        lambda f: put(f.key, rsa_key()),
        f"the key in {KEY} .* does not belong to the certificate in {CERT}",
    ),
    "a key that others can read": (lambda f: Path(f.key).chmod(0o644), f"{KEY}.*mode 0644.*chmod"),
    "an encrypted key": (
        lambda f: put(f.key, key_in("PKCS8", b"secret")),
        f"{KEY} .* is encrypted: set tls.server.keyPassword",
    ),
    "half a certificate": (
        lambda f: put(f.certificate, pair().certificate[:300] + b"\n-----END CERTIFICATE-----\n"),
        f"{CERT} .* can't be used",
    ),
    "half an authority": (
        lambda f: put(f.authorities, pair().certificate[:200] + b"\n-----END CERTIFICATE-----\n"),
        f"{CA} .* can't be used",
    ),
    "no authority": (lambda f: put(f.authorities, b"text"), f"{CA} .* no certificate in PEM"),
    "a folder": (
        lambda f: make_anew(f.certificate, os.mkdir),
        f"{CERT} .* is a folder, not a file: name a file",
    ),
    "a pipe for a certificate": (
        lambda f: make_anew(f.certificate, os.mkfifo),
        f"{CERT} .* is a pipe, not a file: name a file",
    ),
    "a pipe for a key": (
        lambda f: make_anew(f.key, os.mkfifo),
        f"{KEY} .* is a pipe, not a file: name a file",
    ),
    "a pipe for authorities": (
        lambda f: make_anew(f.authorities, os.mkfifo),
        f"{CA} .* is a pipe, not a file: name a file",
    ),
    "a device": (
        lambda f: make_anew(f.authorities, lambda path: Path(path).symlink_to("/dev/zero")),
        f"{CA} .* is a device, not a file: name a file",
    ),
    "a huge file": (lambda f: put(f.certificate, bytes(2 << 20)), f"{CERT} .* 2097152 bytes"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_file_that_can_not_be_used_is_named(name: str, tmp_path: Path) -> None:
    """The error names the file and its fault, and shows nothing of a key."""
    given = files(tmp_path)
    spoil, words = SPOILED[name]
    accepting_context(given, ClientAuth.REQUIRE)
    spoil(given)

    with pytest.raises(ConfigError, match=words) as caught:
        accepting_context(given, ClientAuth.REQUIRE)

    lines = pair().key.decode().splitlines()
    assert not any(line in str(caught.value) for line in lines[1:-1])


@pytest.mark.parametrize("auth", ClientAuth)
def test_authorities_that_are_named_are_read_whoever_needs_them(
    auth: ClientAuth, tmp_path: Path
) -> None:
    """A wrong file of authorities is refused, also by a server that asks for no certificate."""
    given = files(tmp_path)
    put(given.authorities, b"text")

    with pytest.raises(ConfigError, match=f"{CA} .* no certificate in PEM"):
        accepting_context(given, auth)


@pytest.mark.parametrize("form", ["PKCS8", "SEC1"])
@pytest.mark.parametrize("password", ["", "secret"])
def test_keys_of_each_form_are_taken(form: str, password: str, tmp_path: Path) -> None:
    """PKCS#8, as RocketMQ's Java wants it, and what other tools write; with a password "
    "or without."""
    given = replace(files(tmp_path), password=password)
    put(given.key, key_in(form, password.encode()))

    accepting_context(given, ClientAuth.NONE)


def test_a_wrong_password_is_told_as_one_and_is_not_shown(tmp_path: Path) -> None:
    """A wrong password is an error that shows neither it nor the right one."""
    given = replace(files(tmp_path), password="not the word")  # noqa: S106 - of a test
    put(given.key, key_in("PKCS8", b"the word"))

    with pytest.raises(ConfigError, match="the password is wrong") as caught:
        accepting_context(given, ClientAuth.NONE)

    assert "the word" not in str(caught.value)
    assert "not the word" not in repr(given)


def test_a_client_names_its_own_settings(tmp_path: Path) -> None:
    """An error of `tls=Tls(...)` speaks of `ca`, not of a server's keys."""
    with pytest.raises(ConfigError, match="^ca .*missing.pem can't be read"):
        dialling_context(Tls(ca=tmp_path / "missing.pem").files())
    with pytest.raises(ConfigError, match="key=.* without cert="):
        Tls(key="key.pem").files()
    assert "secret" not in repr(Tls(ca="ca.pem", key_password="secret"))  # noqa: S106


@pytest.mark.parametrize("days", [-1.0, 30.0, 20_000.0])
def test_the_dates_of_a_certificate_are_read(days: float, tmp_path: Path) -> None:
    """A certificate's dates are read in both forms of a year, and an expired one has a problem."""
    given = files(tmp_path, pair(days=days))
    validity = own_validity(given)

    assert validity is not None
    assert validity.ends_s - validity.begins_s == pytest.approx(abs(days) * 86_400, abs=1)
    assert (problem_of(validity) is None) == (days > 0)


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_stop_the_reader_of_dates(seed: int) -> None:
    """A certificate that was cut or changed has no dates, or others; nothing is raised."""
    whole = authority().pair.certificate
    damaged = bytearray(whole)
    for at in range(seed, len(damaged), 41):
        damaged[at] = 65 + (at + seed) % 26

    first_validity(damaged.decode())
    first_validity(whole.decode()[: 40 * seed])


def test_files_of_the_authority_are_its_users_alone(tmp_path: Path) -> None:
    """Files of the test's authority are private, whatever the umask says."""
    before = os.umask(0)
    try:
        given = files(tmp_path)
    finally:
        os.umask(before)

    assert Path(given.key).stat().st_mode & 0o077 == 0
