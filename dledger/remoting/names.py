"""What topics and groups may be called: RocketMQ's rule, for brokers and for our client.

The client checks a name before it sends, since a broker's refusal (code 1, as RocketMQ's) does not
say whether anything was stored.
"""

from __future__ import annotations

import re
from typing import Final

from dledger.errors import BadInput
from dledger.limits import NAME_SHOWN_CHARACTERS_MAX, TOPIC_BYTES_MAX
from dledger.remoting.message import RETRY_PREFIX

GROUP_BYTES_MAX: Final = TOPIC_BYTES_MAX - len(RETRY_PREFIX)
"""A group's retry topic must have a legal name, too."""
_LEGAL: Final = re.compile(r"[A-Za-z0-9%|_-]+")


def check_topic_name(topic: str) -> None:
    """Raise BadInput for a name that no topic may have."""
    _check("topic", topic, TOPIC_BYTES_MAX)


def check_group_name(group: str) -> None:
    """Raise BadInput for a name that no group may have."""
    _check("group", group, GROUP_BYTES_MAX)


def check_producer_name(name: str) -> None:
    """Raise BadInput for a name that no producer may have."""
    _check("producer's", name, TOPIC_BYTES_MAX)


def _check(kind: str, name: str, bytes_max: int) -> None:
    if len(name) > bytes_max or not _LEGAL.fullmatch(name):
        raise BadInput(
            f"the {kind} name {name[:NAME_SHOWN_CHARACTERS_MAX]!r} is not 1 to {bytes_max} of the "
            "characters a-z A-Z 0-9 % | _ -"
        )
