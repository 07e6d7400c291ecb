"""Every bound and wait of the Raft part, in one place. Units are in the names. Pure.

The bounds that the network and the log share with it (bytes in flight, members, frames) are in
`dledger/limits.py`.
"""

from __future__ import annotations

from dledger.limits import KIB, MIB, NO_SPACE_RETRY_S

# Elections. Pairs are the ends of a range that a node draws from, so that nodes do not act in step.
ELECTION_TIMEOUT_MIN_S = 1.0
"""Seconds after which a follower that hears nothing from its leader may ask for an election. A
loaded machine may give a node no processor for 0.7 s, which must not cause an election."""
ELECTION_TIMEOUT_MAX_S = 1.3
HEARTBEAT_S = 0.3
"""Seconds between two heartbeats of a leader. A follower stays patient with a leader that stands
still for 0.7 s just before a heartbeat. More heartbeats would only wake idle groups."""
LINK_LOST_WAIT_S = (0.002, 0.03)
"""A node whose link to the leader broke waits this long before it asks the others."""
RETRY_WAIT_S = (0.05, 0.2)
"""A node waits this long after a pre-vote or an election without a result."""
YIELD_WAIT_S = (0.1, 0.25)
"""A node that granted another's pre-vote waits this long before it asks for itself."""

REPLAY_ENTRIES_MAX = 2000
"""Entries to apply before it could serve, above which a node lets others go first: entries with
messages take it half a second and more."""
GIVE_WAY_S = (0.3, 0.5)
"""Seconds for which it lets them go first, once for each leader that it misses: until all who miss
it have asked."""

# Handing leadership over.
TRANSFER_TIMEOUT_S = 1.0
"""A leader waits this long for its successor: about an election timeout, as the dissertation has
it (Ongaro, 3.10)."""
PREFERRED_LAG_ENTRIES_MAX = 1000
"""The preferred node is caught up if it lacks no more entries than this (DLedger's
maxLeadershipTransferWaitIndex)."""
PREFERRED_HEALTHY_S = 5.0
"""The preferred node gets leadership back when it has been linked and caught up for this long. A
node that comes and goes does not get it."""
PREFERRED_RETRY_FACTOR = 6
"""The factor by which the next try of a transfer to it waits longer, after one that failed."""
CONSULT_AGAIN_S = 1.0
"""A leader without room for messages asks the others this often whether they could lead."""

# Bounds of a node's step.
MESSAGES_PER_STEP_MAX = 256
"""Messages of peers that one step handles; the next step takes the others."""
APPLY_BYTES_PER_STEP = 8 * MIB
"""Committed entries that one step applies, in bytes."""
APPLY_S_PER_STEP = 0.02
"""A step applies committed entries for this long at most. Between the steps of a long replay the
node sends and receives. A leader that replayed for an election timeout in one go would be deposed,
and so would the next one. And a sync needs some turns of the loop, so with long steps a node that
replays would acknowledge late."""
LATE_S = 0.02
"""An acknowledgement that waited longer than this for its step does not count as a sign of life."""
BUSY_RETRY_AFTER_S = 0.02
"""Seconds until a caller that appends or reads should try again, if too much is pending."""
NO_SPACE_RETRY_AFTER_S = NO_SPACE_RETRY_S
"""Seconds until a caller that appends should try again, if the disk is full: the log tries that
often to get more room."""

# Sending to peers, and what they acknowledge.
BATCH_BYTES = MIB
"""Bytes of entries, roughly, that a message to a peer carries at most, all of one segment."""
BURST_ENTRIES, BURST_BYTES = 32, 256 * KIB
"""A burst of appends is sent in parts of this size: peers write one while the leader takes the
next."""
COMMITS_GO_ON_S = 0.2
"""A leader that has committed nothing for this long has no appends that copying could slow down."""
PACE_S = 0.02
"""A peer that flow control held back is looked at again after this time."""
HEAD_AGAIN_S = 0.5
"""A head that was sent and not answered is sent again after this time."""
NO_SPACE_ASK_S = 1.0
"""Seconds between two questions of a follower whose disk is full for the entries that it lacks."""
NO_SPACE_REPORT_S, NO_SPACE_COUNTS_S = 1.0, 3.0
"""A follower that can't begin another segment tells its leader that often; and the leader goes by
it for that long, or for three heartbeats if those take longer."""
SIGN_OF_LIFE_S = 0.2
"""A follower whose disk is busy for longer than this tells the leader that it is alive."""
ACK_AGAIN_S = 0.5
"""A follower repeats its last acknowledgement at the first heartbeat after this time, so at every
second one: twice within the leader's patience. Not more often, since each one wakes the leader of
an idle group."""

# Reads and repairs.
READS_ASK_AGAIN_S = 0.1
"""A round of confirmations without a majority is sent again: a link may have broken meanwhile."""
REPAIR_ASK_AGAIN_S = 0.5
"""A damaged node asks again that often. A leader answers within a round trip or two; other nodes
do not answer."""

# Members.
LAG_ENTRIES_MAX = 1000
"""A learner that lacks no more entries than this is caught up; the rest takes some milliseconds."""
IN_TOUCH_S = 1.0
"""A member that answered within this time is in touch with the leader."""
STATE_ASKED_S = 3.0
"""A learner that asked for a part of the state within this time does not have all of it yet."""
VOTERS_MIN = 2
"""A group is not made smaller than this: with one voter there would be one copy."""
HOST_BYTES_MAX = 255
"""The longest name of a member's host, in bytes."""
STATE_ASK_AGAIN_S = 1.0
"""A part of the state that did not come is asked for again after this time."""
LOOK_AGAIN_S = 0.02
"""A node that lacks a state checks that often whether it has it now, or whom it can ask."""
PICTURE_KEPT_S = 30.0
"""A snapshot of the state that no node has asked for in this time is dropped."""

# Links.
HELLO_BYTES_MAX = 1024
"""The longest message of the handshake, in bytes."""
HANDSHAKE_TIMEOUT_S = 2.0
"""Seconds from an accepted connection until its other end has proven that it knows the secret."""
CONNECT_TIMEOUT_S = 1.0
LOOKUP_S = 15.0
"""Seconds for the look-up of a peer's name: a resolver may ask several servers in turn, each for 5
s. Nothing else waits for it."""
LOOKUP_AGAIN_S = 1.0
"""Seconds between two look-ups of a peer's name."""
REDIAL_WAIT_S = 0.1
"""Seconds between two attempts to connect to a peer that this node should dial."""
ACCEPT_AGAIN_S = 0.1
"""The pause after an accept that failed, as for want of file descriptors, in seconds."""
UNDIALLED_WAIT_S = 1.0
"""A peer that should dial this node, and has not for this long, may not know it: then this node
dials."""
READ_BUFFER_BYTES = 4 * MIB
"""Bytes received from one peer at once."""
BUFFERS_PER_WRITE = 64
"""Buffers given to the kernel in one call."""
UNACKNOWLEDGED_S = 5.0
"""Seconds after which a peer whose host does not answer any more is given up (TCP_USER_TIMEOUT)."""

assert HEARTBEAT_S < SIGN_OF_LIFE_S + ACK_AGAIN_S < ELECTION_TIMEOUT_MIN_S < ELECTION_TIMEOUT_MAX_S
