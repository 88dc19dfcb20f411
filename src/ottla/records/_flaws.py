"""What the walk over a batch's records can find, by number: `_native.c` and `_pure` speak the same ones."""

from __future__ import annotations

FLAW_NONE = 0
FLAW_CUT = 1
FLAW_VARINT = 2
FLAW_FIELD = 3
FLAW_OFFSET = 4
FLAW_HEADER_COUNT = 5
FLAW_HEADER_KEY = 6
FLAW_LENGTH = 7
FLAW_TRAILING = 8

OFFENCE_KEYLESS = 1
OFFENCE_TIMESTAMP = 2
OFFENCES_MAX = 1000
"""Those after the first thousand of a batch are not gathered: a small one can unpack to millions of records."""

FLAW_TEXT = (
    "",
    "runs past the end of the batch",
    "holds a varint that is too long",
    "holds a field that runs past its end",
    "does not have the next offset delta",
    "has a number of headers that cannot be",
    "has a header without a key",
    "is longer than its fields",
    "was to be the last, and bytes follow",
)
"""Each says something of the record that the walk names."""
