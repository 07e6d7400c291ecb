"""Whether other members would take a server's certificate: a handshake in memory, with itself.

Members have the same authorities in their files. So a certificate that a server's own authorities
do not vouch for, or that names another host than members dial, would cut it off from its group as
soon as a connection breaks.
"""

from __future__ import annotations

import ssl
from typing import Final

from dledger.errors import ConfigError
from dledger.limits import TLS_FLIGHTS_MAX
from dledger.tls.options import Files
from dledger.tls.reasons import explained

_UNKNOWN_AUTHORITY: Final = range(18, 22)
_ANOTHER_NAME: Final = (62, 64)


def rehearse(accepting: ssl.SSLContext, dialled: ssl.SSLContext, host: str, files: Files) -> None:
    """Raise ConfigError if a member at `host` that has both contexts would refuse itself."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        dialled.wrap_bio(to_client, to_server, server_hostname=host),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(TLS_FLIGHTS_MAX):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        ends[0].write(b"x")  # with TLS 1.3 a client is through before its certificate was seen
        ends[1].read(1)
    except ssl.SSLError as error:
        raise ConfigError(_explained(error, host, files)) from error


def _explained(error: ssl.SSLError, host: str, files: Files) -> str:
    code = getattr(error, "verify_code", 0)
    what = f"other members would refuse {files.names.certificate} {files.certificate}: "
    if code in _UNKNOWN_AUTHORITY:
        return (
            f"{what}{files.names.authorities} {files.authorities} does not have the authority that "
            "signed it. Add it there first, on every server"
        )
    if code in _ANOTHER_NAME:
        return (
            f"{what}it does not name {host}, where they dial this server. Make one with it among "
            "the subjectAltNames"
        )
    return what + explained(error)
