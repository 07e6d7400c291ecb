"""The typed headers, one frozen Struct per request and per response that has one.

``base``     how a header becomes the `ext` map of a command, and back
``send``     messages in
``consume``  messages and offsets out
``pop``      messages handed out for a time
``once``     producers with a name, and what they write
``group``    who consumes, and who leads
``namesrv``  registration, routes, key-value config
``admin``    what operators' tools ask
``access``   users, and what they may do

They are named after their code: `PullMessageHeader` goes with PULL_MESSAGE and
`PullMessageResponseHeader` with its answer. Field names are RocketMQ's in snake_case;
`rename="camel"` makes the wire's names of them. Fields with the default None are optional on the
wire.
"""

from __future__ import annotations

from dledger.remoting.headers.access import *
from dledger.remoting.headers.admin import *
from dledger.remoting.headers.base import *
from dledger.remoting.headers.consume import *
from dledger.remoting.headers.group import *
from dledger.remoting.headers.namesrv import *
from dledger.remoting.headers.once import *
from dledger.remoting.headers.pop import *
from dledger.remoting.headers.send import *
