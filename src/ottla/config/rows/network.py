"""Listeners, connections and requests."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Importance, ListOf, OneOf, Range, Type, Update

INT = Type.INT
LIST = Type.LIST
LONG = Type.LONG
STRING = Type.STRING
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Update.CLUSTER_WIDE
PER_BROKER = Update.PER_BROKER

# fmt: off
ROWS = (
    K("listeners", LIST, "PLAINTEXT://:9092",
      "Where the node listens, each entry as NAME://host:port; an empty host binds every address. A change counts "
      "from the next start.",
      rule=ListOf(may_be_empty=False), importance=HIGH, update=PER_BROKER),
    K("advertised.listeners", LIST, None,
      "The addresses that clients and other nodes are told to use; `listeners` when unset.",
      rule=ListOf(may_be_empty=False), importance=HIGH),
    K("listener.security.protocol.map", STRING,
      "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
      "Which security protocol each listener name speaks.", importance=LOW, update=PER_BROKER),
    K("inter.broker.listener.name", STRING, None,
      "The listener over which brokers talk to each other."),
    K("security.inter.broker.protocol", STRING, "PLAINTEXT",
      "The security protocol between brokers, where no listener is named for it.",
      rule=OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))),
    K("early.start.listeners", LIST, None,
      "Listeners that accept connections before the authorizer has loaded its rules.", rule=ListOf(), importance=HIGH),
    K("num.network.threads", INT, "3",
      "Network threads a listener in Apache Kafka; Ottla serves all connections on one event loop.",
      rule=Range(1), importance=HIGH, update=CLUSTER_WIDE),
    K("num.io.threads", INT, "8",
      "Request threads in Apache Kafka; Ottla handles requests on one event loop.",
      rule=Range(1), importance=HIGH, update=CLUSTER_WIDE),
    K("background.threads", INT, "10",
      "Threads for background work in Apache Kafka; Ottla has an event loop and a few threads for work that blocks.",
      rule=Range(1), importance=HIGH, update=CLUSTER_WIDE),
    K("queued.max.requests", INT, "500",
      "The most requests between the network and request threads of Apache Kafka. Ottla has one event loop and no such "
      "queue: a request starts when it is read, and a connection may have 128 that are not yet answered.",
      rule=Range(1), importance=HIGH),
    K("queued.max.request.bytes", LONG, "-1",
      "The most bytes of requests that have not arrived whole before reading pauses; -1 for no limit."),
    K("request.timeout.ms", INT, "30000",
      "How long this node, as a client of others, waits for an answer.", importance=HIGH),
    K("max.request.partition.size.limit", INT, "2000",
      "The most partitions that one DescribeTopicPartitions answer holds.", rule=Range(1)),
    K("socket.send.buffer.bytes", INT, "102400",
      "Size of a connection's send buffer; -1 leaves it to the operating system, which tunes it; with no entry it is "
      "1 MiB where the system allows that.",
      importance=HIGH),
    K("socket.receive.buffer.bytes", INT, "102400",
      "Size of a connection's receive buffer; -1, or no entry, leaves it to the operating system, which tunes it.",
      importance=HIGH),
    K("socket.request.max.bytes", INT, "104857600",
      "The largest request that a connection may send.", rule=Range(1), importance=HIGH),
    K("socket.listen.backlog.size", INT, "50",
      "The most connections that wait to be accepted; without an entry Ottla lets 1024 wait.", rule=Range(1)),
    K("socket.connection.setup.timeout.ms", LONG, "10000",
      "How long opening a connection may take at first."),
    K("socket.connection.setup.timeout.max.ms", LONG, "30000",
      "The most that the time for opening a connection grows to after failures."),
    K("max.connections.per.ip", INT, "2147483647",
      "The most connections from one address.", rule=Range(0), update=CLUSTER_WIDE),
    K("max.connections.per.ip.overrides", STRING, "",
      "Limits for single addresses or host names, as host:count, that replace `max.connections.per.ip`.",
      update=CLUSTER_WIDE),
    K("max.connections", INT, "2147483647",
      "The most open connections, of the whole node or, with a listener prefix, of one listener.",
      rule=Range(0), update=CLUSTER_WIDE),
    K("max.connection.creation.rate", INT, "2147483647",
      "The most new connections a second, of the whole node or, with a listener prefix, of one listener; over it a "
      "listener pauses and peers wait.",
      rule=Range(0), update=CLUSTER_WIDE),
    K("connections.max.idle.ms", LONG, "600000",
      "A connection that is silent this long is closed."),
    K("connection.failed.authentication.delay.ms", INT, "100",
      "How long closing waits after a failed authentication, which slows guessing down.",
      rule=Range(0), importance=LOW),
    K("fetch.max.bytes", INT, "57671680",
      "The most bytes that one fetch response holds, though never less than one batch.", rule=Range(1024)),
    K("max.incremental.fetch.session.cache.slots", INT, "1000",
      "The most fetch sessions that are remembered.", rule=Range(0)),
    K("telemetry.max.bytes", INT, "1048576",
      "The largest block of metrics that a client may push, as it is sent.", rule=Range(1), importance=LOW),
)
