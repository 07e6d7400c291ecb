"""Rows of docs/reference/compatibility.md about users and encryption, and their clients."""

from __future__ import annotations

from typing import Final, NamedTuple

JAVA: Final = ("java4", "java5")
SIGNING: Final = (*JAVA, "go", "node", "cpp")
NO_RIGHT: Final = ("has no permission to access Topic:",)
WRONG: Final = ("check signature failed",)
FEW_WORDS: Final = ("16", "ProducerSendSync", "times, still failed")
"""The C++ wheel tells its application a number, the Node client that its tries have failed."""


NOTES: Final = """A refusal is code 16 with RocketMQ's words. The Java and Go clients show them; the
Node client tells its application that its tries have failed, the C++ wheel a number.

Over TLS only the Java clients are tried: of the Go client no released version has TLS (2.1.2; its
master has), the Node client has none, and the C++ wheel does not show its library's. The Java
client takes any certificate unless `tls.test.mode.enable` is false and `tls.client.authServer`
true, with `tls.client.trustCertPath`, in the file that `tls.config.file` names. It never looks
whether a certificate names the host.
"""


class Door(NamedTuple):
    """A row: its title, the clients that are tried, what a refused one is told."""

    title: str
    clients: tuple[str, ...]
    words: tuple[str, ...] = ()


DOORS: Final = {
    "signed": Door("Signed, as a user who may", SIGNING),
    "no right": Door("Signed, as a user who may not: told so", SIGNING, (*NO_RIGHT, *FEW_WORDS)),
    "wrong password": Door("Signed with a wrong password: told so", SIGNING, (*WRONG, *FEW_WORDS)),
    "tls": Door("Signed, over TLS, any certificate taken (its default)", JAVA),
    "tls, authority": Door("The same, the authority checked", JAVA),
    "tls, own certificate": Door("The same, with a certificate of its own", JAVA),
    "tls, no right": Door("Over TLS, as a user who may not: told so", JAVA, NO_RIGHT),
    "plain, enforcing": Door("Plain text where TLS is enforced: refused", JAVA),
}
