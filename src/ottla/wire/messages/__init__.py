"""Every message of Kafka's protocol and of its stored records: one module a message, loaded when first asked for.

The modules and `_index` are generated (`tools/codegen`). Take a class from its own module, as in
`from ottla.wire.messages.produce_request import ProduceRequest`; this package only finds classes by key or by name,
for those who replay records: the metadata log, and the coordinators' logs, whose keys carry the type in the version
that they begin with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from ottla.wire.message import Message
from ottla.wire.messages import _index


def message_class(name: str) -> type[Message]:
    """The class with Kafka's name `name`, such as "ProduceRequest"."""
    words = name.replace("KRaft", "Kraft")
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).removeprefix("_")
    found = getattr(import_module(f"{__name__}.{module}"), name)
    assert isinstance(found, type) and issubclass(found, Message)
    return found


def message_names() -> list[str]:
    """The names of all messages, sorted."""
    return _index.NAMES.split()


class Registry(Mapping[int, type[Message]]):
    """Classes by key; a class's module is imported when the class is first looked up."""

    __slots__ = ("_classes", "_names")

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._classes: dict[int, type[Message]] = {}

    def __getitem__(self, key: int) -> type[Message]:
        try:
            return self._classes[key]
        except KeyError:
            found = self._classes[key] = message_class(self._names[key])
            return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


METADATA_RECORDS = Registry(_index.METADATA_RECORDS)
"""The records of `__cluster_metadata`, by the API key in front of each."""
REMOTE_LOG_RECORDS = Registry(_index.REMOTE_LOG_RECORDS)

GROUP_KEYS = Registry(_index.GROUP_KEYS)
"""The keys of `__consumer_offsets`, by record type; `GROUP_VALUES` has the value that goes with each."""
GROUP_VALUES = Registry(_index.GROUP_VALUES)
TRANSACTION_KEYS = Registry(_index.TRANSACTION_KEYS)
TRANSACTION_VALUES = Registry(_index.TRANSACTION_VALUES)
SHARE_KEYS = Registry(_index.SHARE_KEYS)
SHARE_VALUES = Registry(_index.SHARE_VALUES)
