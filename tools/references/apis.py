"""The page of all APIs: their versions, who serves them, which right they ask for, and where their code is."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.metadata.acls import Operation, ResourceType
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS, Asked, Row
from ottla.wire.apis import APIS

_INTRODUCTION = """\
# APIs

<!-- Made by `make references` from ottla.wire.apis, ottla.broker.api and ottla.security.rights. -->

Every request that a node answers, with the versions that it speaks; ApiVersions tells clients the same. Messages are
Apache Kafka 4.3.1's, byte for byte. What *asks for* says counts where there is an authorizer
([who may do what](authorisation.md)): rights to the cluster, or to what the request names, such as a topic. Of several,
not every request needs all. The rights are those of the one table that the code asks by.
*Handled in* is a module of `src/ottla/broker/api`; what is `forwarded` is answered by the active controller.
"""

_ELSEWHERE = {
    Asked.BY_CONTROLLER: "as the controller does",
    Asked.OF_OWNERS: "being the owner",
    Asked.NEVER: "nothing",
}


def render() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield from _section("On a listener for clients", HANDLERS, BROKER_RIGHTS)
    yield from _section("On a controller's listener", CONTROLLER_HANDLERS, CONTROLLER_RIGHTS)
    missing = [api for key, api in sorted(APIS.items()) if key not in HANDLERS and key not in CONTROLLER_HANDLERS]
    yield "## Not served\n"
    yield "They belong to what Ottla does not have, and ApiVersions does not name them:"
    yield ", ".join(f"{api.name} ({api.key})" for api in missing) + "."
    yield ""


def _section(title: str, handlers: dict[int, str], rights: dict[int, Row]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | API | versions | asks for | handled in |"
    yield "|--:|---|---|---|---|"
    for key, module in sorted(handlers.items()):
        api = APIS[key]
        first, last = api.first_version, api.last_version
        versions = str(first) if first == last else f"{first}–{last}"
        yield f"| {key} | {api.name} | {versions} | {_right(rights[key])} | `{module}` |"
    yield ""


def _right(row: Row) -> str:
    if isinstance(row, Operation):
        return f"`{row.name}` on the cluster"
    if isinstance(row, Asked):
        return _ELSEWHERE[row]
    return ", ".join(f"`{right.operation.name}` on the {_kind(right.kind)}" for right in row)


def _kind(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")
