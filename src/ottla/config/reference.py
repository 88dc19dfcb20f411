"""The reference page of all keys, made from the table: `python -m ottla.config.reference > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ottla.config.key import ConfigKey, Scope, Update
from ottla.config.table import AREAS, TOPIC_SYNONYMS, group_synonym, keys, rows

_TITLES = {
    "kraft": "Roles, the metadata quorum and the life of a node",
    "network": "Listeners, connections and requests",
    "log": "Logs, retention and compaction",
    "replication": "Replication",
    "groups": "Groups",
    "transactions": "Transactions",
    "share": "Share groups",
    "security": "Security",
    "remote": "Remote storage",
    "quotas": "Quotas and metrics",
    "own": "What Kafka does not have",
}
_UPDATES = {Update.READ_ONLY: "restart", Update.PER_BROKER: "per broker", Update.CLUSTER_WIDE: "cluster-wide"}

_INTRODUCTION = """\
# Configuration

<!-- Made by `python -m ottla.config.reference > docs/configuration.md`; change the rows in src/ottla/config/rows. -->

Every key of Apache Kafka 4.3.1 is understood, with its name, type, default and range. Keys that belong to a part of
Kafka that Ottla does not have yet are kept, validated and described, and have no effect.

A node reads its keys from a properties file (`ottla node server.properties`) or from `--set KEY=VALUE`. What *change*
says: `restart` keys are read once; `cluster-wide` keys can be changed while brokers run, for all of them or for one;
`per broker` keys can be changed for one broker at a time. What is set for one broker wins over what is set for all,
which wins over the file, which wins over the default.
"""


def render() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for area in AREAS:
        yield from _section(f"## {_TITLES[area]}", rows(area), "change", lambda key: _UPDATES[key.update])
    yield from _section(
        "## Keys of a topic",
        list(keys(Scope.TOPIC).values()),
        "default from",
        lambda key: _code(TOPIC_SYNONYMS.get(key.name)),
    )
    yield from _section(
        "## Keys of a group",
        list(keys(Scope.GROUP).values()),
        "default from",
        lambda key: _code(group_synonym(key.name)),
    )
    for title, scope in (
        ("## Keys of a client metrics subscription", Scope.CLIENT_METRICS),
        ("## Quotas of users and clients", Scope.USER_QUOTA),
        ("## Quotas of addresses", Scope.IP_QUOTA),
    ):
        yield from _section(title, list(keys(scope).values()), "", lambda key: "")


def _section(title: str, table: Sequence[ConfigKey], column: str, cell: Callable[[ConfigKey], str]) -> Iterator[str]:
    yield f"{title}\n"
    yield (
        f"| key | type | default | range | {column} | what it is |"
        if column
        else ("| key | type | default | range | what it is |")
    )
    yield "|---" * (6 if column else 5) + "|"
    for key in table:
        cells = [_code(key.name), key.type.name.lower(), _default(key), str(key.rule or "")]
        if column:
            cells.append(cell(key))
        cells.append(f"*Internal.* {key.documentation}" if key.internal else key.documentation)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _default(key: ConfigKey) -> str:
    if key.required:
        return "(required)"
    if key.default is None:
        return "(unset)"
    # A space after each comma lets a browser break the longest of them.
    return _code(key.default.replace(",", ", ")) if key.default else "(empty)"


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(render(), end="")
