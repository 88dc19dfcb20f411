"""What one request, and one turn of one connection, may cost: the bounds that no config key sets.

One event loop serves everybody, so whatever a request costs is taken from all others. Apache Kafka has threads to
spare and bounds requests by `socket.request.max.bytes` alone; here a well-formed request of that size could keep the
loop busy for minutes and become gigabytes of objects. Each bound lies far above what clients send and keeps a request
within about 200 ms and 64 MB. Read by the connection, the dispatcher and the handlers.
"""

from __future__ import annotations

REQUEST_BYTES_MAX = 8 * 1024 * 1024
"""The largest request that is not Produce, whose size is `socket.request.max.bytes`'s affair: its bytes stay bytes."""

ELEMENTS_MAX = 20_000
"""Elements of all arrays of a request, nested ones and tagged fields included. More, and the connection is closed."""

PARTITIONS_ASKED_MAX = 100_000
_ELEMENTS_MAX_OF = {2: PARTITIONS_ASKED_MAX, 9: PARTITIONS_ASKED_MAX}
"""Of ListOffsets and OffsetFetch, by which tools ask for all partitions of a group, or of a node, at once. They change
nothing, and are read and answered in steps."""

READ_AT_ONCE_BYTES_MAX = 16 * 1024
"""A request of theirs that is larger is read in steps: it may be of very many elements."""

AUTO_CREATED_MAX = 100
"""Topics that one Metadata request creates; it says of the others that they are unknown, and creates them when asked
again, as clients do."""

DESCRIBED_CONFIGS_MAX = 20_000
"""Config entries in one DescribeConfigs answer; the resources after them are refused."""

GROUP_MATCHES_MAX = 100_000
GROUP_PATTERNS_MIN = 4
"""The members of a group may subscribe by so many different regular expressions in any case, and by more if there are
few topics: each is tried on the name of every topic, so often at most, in one turn of the loop."""

ELEMENTS_A_TURN_MAX = 1_000
"""Offsets, members and what they are assigned, partitions: so many of a long answer are made in one turn of the loop
(`answer_budget`)."""

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
DECOMPRESSED_RATIO_MAX = 8
"""What the batches of one Produce request may unpack to, all together: so many bytes, or so many times its own size,
whichever is more. A batch has limits of its own (`records.compression`)."""

FETCH_WAIT_MS_MAX = 300_000
"""A fetch that asks to wait longer is answered, empty-handed, after five minutes."""

TURN_SECONDS_MAX = 0.002
"""For how long a connection may start one request after another before the others have their turn."""

FLUSH_BYTES_MIN = 64 * 1024
"""A reply this large goes to the socket before the next request starts, so that a peer who does not read is noticed."""

LINGER_MS = 10_000
"""How long a connection that is being closed may take to read what it was sent."""

AUTHENTICATION_MS_MAX = 60_000
"""How long a client may take to prove who it is, on a listener that asks for it."""


def elements_max(api_key: int) -> int:
    """The most elements that a request of this API may have."""
    return _ELEMENTS_MAX_OF.get(api_key, ELEMENTS_MAX)


def may_be_long(api_key: int) -> bool:
    """May a request of this API have so many elements that others are served while it is read and answered?"""
    return api_key in _ELEMENTS_MAX_OF
