"""Judges: a module for each property of the design, or family of properties.

Each has a function from the evidence (DataFrames) to a DataFrame of violations with the columns of
:data:`COLUMNS`. No row means that the property holds. A judge says only
what the evidence proves:

- A send without an answer may have happened or not: its message may be in the log, or not.
- The tail of a replica's log beyond what is *settled* proves nothing. An entry is settled if a
  client knows of it or of a later one (by an acknowledgement or a delivery), or if all replicas
  hold it alike, since then every future leader holds it.
- Deliveries may repeat. They must not skip a message, or come before their predecessors.

``ledger``        the data of the logs, entry by entry, and how far they are settled
``evidence``      the data of messages, queues and groups beside it: all that judges ask
``alone``         what replicas show without a history
``lives``         which life of its topic a statement is about
``logs``          what logs say beside the history's messages
``violations``    the form of findings
``durability``    property 1
``authenticity``  property 2
``identity``      property 3
``order``         property 4
``replication``   properties 5 and 13
``leadership``    properties 6 and 7
``copies``        property 9
``waiting``       properties 10 and 11
``answers``       what nodes answer, and property 12
``acts``          what tools do, and property 17
``groups``        properties 8 and 14 to 16
``batches``       property 19
"""

from typing import Final

#: `what` is one word for the kind of violation, `severity` orders kinds (worst first: 0),
#: `positions` are byte positions in the log, `detail` is a sentence for people.
COLUMNS: Final = (
    "severity int, what string, message_id string, broker string, replica string, topic string, "
    "queue_id int, queue_offset long, positions array<bigint>, detail string"
)
