"""The JSON bodies of requests and responses, as typed structs.

``base``    how a body is written, in which dialect, and how it is read whatever the dialect
``staged``  what half messages and decisions say of staged entries (pure)
``routes``  where the queues of topics are
``groups``  consumers and their groups
``state``   the state of queues and groups, for tools
``access``  users, and what they may do

RocketMQ writes two dialects of one document: the standard one, and a loose one that leaves
numeric map keys unquoted and uses whole objects as map keys (`dledger.remoting.json_dialect`).
Both are read; which one is written is the caller's choice, since only the loose form is proven
with clients before 4.9.4. Members that a struct does not know are ignored, members that are
missing get their defaults, as with the reference's decoder. Shapes: RocketMQ's classes of the
same names.
"""

from __future__ import annotations

from dledger.remoting.bodies.base import *
from dledger.remoting.bodies.groups import *
from dledger.remoting.bodies.routes import *
from dledger.remoting.bodies.state import *
