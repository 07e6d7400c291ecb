"""Takes over the secrets of a changed secretFile.

A name server asks nobody: brokers prove to it. It only keeps a secret that it has from one file to
the next, and the passwords that it was told readable. Brokers look after name servers when they
take their own steps (`dledger.trust.rolling`).
"""

from __future__ import annotations

from pathlib import Path

from dledger.limits import SECRET_LOOK_S
from dledger.program.pulse import look
from dledger.trust.rolling import refusal
from dledger.trust.secret import SecretFile
from mqnamesrv.door import Door
from mqnamesrv.requests.users import UserDoor


async def keep_secrets(path: Path, door: Door, users: UserDoor) -> None:
    """Look at the file until cancelled."""
    file = SecretFile(path, door.secrets)
    while True:
        await look(SECRET_LOOK_S)
        wanted = file.wanted()
        if wanted is None:
            continue
        present = door.secrets.valid
        reason = refusal(present, wanted, (), users.unreadable(present, wanted))
        if reason is None:
            file.take(wanted)
        else:
            file.refuse(reason)
