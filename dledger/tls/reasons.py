"""Failures of TLS in words: which end refused what, and the remedy. Pure.

OpenSSL tells a reason in capitals, with the number of a line in C. An alert in it was sent by the
other end; everything else was found by this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_UNKNOWN_AUTHORITY: Final = (
    "its certificate is signed by an authority that this end does not trust: give that authority's "
    "certificate (ca)"
)
_ANOTHER_NAME: Final = (
    "its certificate does not name the {} that was dialled: make one with it among the "
    "subjectAltNames, or dial a name that it has"
)
_VERIFIED: Final[Mapping[int, str]] = {
    9: "its certificate is not valid yet: compare the clocks of both machines",
    10: "its certificate has expired: it needs a new one",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    26: "its certificate is not made for this purpose: it needs serverAuth for a server, "
    "clientAuth for a client, and both for a member",
    62: _ANOTHER_NAME.format("host"),
    64: _ANOTHER_NAME.format("address"),
}
"""Reasons by the number of OpenSSL's verdict (X509_V_ERR)."""
_NO_CIPHER: Final = "the two have no cipher in common"
_ALERTS: Final[Mapping[str, str]] = {
    "CERTIFICATE_REQUIRED": "it demands a certificate of this end: give one (cert and key)",
    "UNKNOWN_CA": "it does not trust the authority that signed this end's certificate",
    "CERTIFICATE_EXPIRED": "it says that this end's certificate has expired",
    "CERTIFICATE_REVOKED": "it says that this end's certificate was revoked",
    "CERTIFICATE_UNKNOWN": "it does not accept this end's certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not accept this end's certificate: perhaps it is not made "
    "for this purpose",
    "BAD_CERTIFICATE": "it does not accept this end's certificate; perhaps it demands one, and "
    "none was given (cert and key)",
    "PROTOCOL_VERSION": "it takes other versions of TLS; this end speaks 1.2 and 1.3",
    "HANDSHAKE_FAILURE": f"{_NO_CIPHER}, or it demands a certificate of this end",
    "UNRECOGNIZED_NAME": "it has no certificate for the name that was dialled",
    "INTERNAL_ERROR": "it failed for a reason of its own",
}
"""Reasons by the end of OpenSSL's text for an alert of the other end."""
_OWN: Final[Mapping[str, str]] = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS",
    "RECORD_LAYER_FAILURE": "what it sent is not a TLS record",
    "UNSUPPORTED_PROTOCOL": "it speaks an older TLS than 1.2",
    "NO_SHARED_CIPHER": _NO_CIPHER,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and this end demands one",
    "NO_RENEGOTIATION": "it asked for a renegotiation, which is refused",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "the data was changed on the way",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection",
}


def explained(error: OSError) -> str:
    """An error of TLS in words about the other end."""
    code = getattr(error, "verify_code", 0)
    if code in _VERIFIED:
        return _VERIFIED[code]
    reason = str(getattr(error, "reason", "") or "")
    if code:
        return f"its certificate is refused: {getattr(error, 'verify_message', '')}"
    if "ALERT" in reason:
        for ending, text in _ALERTS.items():
            if reason.endswith(ending):
                return text
        return f"it refused the connection ({reason.lower().replace('_', ' ')})"
    if reason in _OWN:
        return _OWN[reason]
    if reason:
        return f"TLS failed: {reason.lower().replace('_', ' ')}"
    return str(error)
