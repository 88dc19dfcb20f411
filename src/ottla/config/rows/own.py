"""What Apache Kafka does not have: keys of Ottla's own, whose names begin so. They are described only where set."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import ListOf, Type

# fmt: off
ROWS = (
    K("ottla.metrics.listener", Type.STRING, None,
      "A port that serves `/metrics` and health pages and nothing else, as host:port; a port alone is one of "
      "127.0.0.1. For nodes whose listeners ask for a login, since those serve no pages.",
      internal=True),
    K("ottla.gateway.listeners", Type.LIST, "",
      "Names of listeners on which this node stands for the whole cluster: it forwards what is for others.",
      rule=ListOf(), internal=True),
)
