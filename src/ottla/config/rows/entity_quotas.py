"""Keys of users, clients and addresses."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Range, Type

DOUBLE = Type.DOUBLE
INT = Type.INT
LONG = Type.LONG
STRING = Type.STRING

# fmt: off
USER_ROWS = (
    K("SCRAM-SHA-256", STRING, None,
      "A user's SCRAM-SHA-256 credential."),
    K("SCRAM-SHA-512", STRING, None,
      "A user's SCRAM-SHA-512 credential."),
    K("consumer_byte_rate", LONG, "9223372036854775807",
      "The most bytes a second that a client fetches from one broker."),
    K("controller_mutation_rate", DOUBLE, "2.147483647E9",
      "The most topics and partitions a second that a client creates and deletes."),
    K("producer_byte_rate", LONG, "9223372036854775807",
      "The most bytes a second that a client sends to one broker."),
    K("request_percentage", DOUBLE, "2.147483647E9",
      "The most time of the broker's threads, in percent of one, that a client's requests take."),
)
IP_ROWS = (
    K("connection_creation_rate", INT, "2147483647",
      "The most connections a second that one address opens.", rule=Range(0)),
)
