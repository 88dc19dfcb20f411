"""Keys of a subscription to client metrics (KIP-714)."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import ListOf, Type

INT = Type.INT
LIST = Type.LIST

# fmt: off
ROWS = (
    K("interval.ms", INT, "300000",
      "How often a client that matches pushes its metrics."),
    K("match", LIST, "",
      "Which clients push, as attribute=pattern entries such as `client_id=orders-.*`; empty for all clients.",
      rule=ListOf()),
    K("metrics", LIST, "",
      "Prefixes of the metrics that clients push; `*` for all, empty for none.", rule=ListOf()),
)
