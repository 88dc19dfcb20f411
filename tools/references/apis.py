"""The page of all APIs: their versions, who serves them, which right they ask for, and where their code is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.metadata.acls import Operation
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS, Asked, Right
from ottla.wire.apis import APIS

_INTRODUCTION = """\
# APIs

<!-- Made by `make references` from ottla.wire.apis, ottla.broker.api and ottla.security.rights. -->

Every request that a node answers, with the versions that it speaks; ApiVersions tells clients the same. Messages are
Apache Kafka 4.3.1's, byte for byte. What *asks for* says counts where there is an authorizer
([who may do what](authorisation.md)): rights to the cluster, or to what the request names, such as a topic. Of several,
not every request needs all.
*Handled in* is a module of `src/ottla/broker/api`; what is `forwarded` is answered by the active controller.
"""

_SHARED = {"forwarded", "on_controller"}
"""Modules that handle many APIs: what they ask for is each API's own affair, and is not read from them."""

_KINDS = {
    "may_topic": "topic",
    "may_group": "group",
    "may_cluster": "cluster",
    "may_transactional": "transactional id",
}
_ELSEWHERE = {
    Asked.BY_HANDLER: "what it names",
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


def _section(title: str, handlers: dict[int, str], rights: dict[int, Right]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | API | versions | asks for | handled in |"
    yield "|--:|---|---|---|---|"
    for key, module in sorted(handlers.items()):
        api = APIS[key]
        first, last = api.first_version, api.last_version
        versions = str(first) if first == last else f"{first}–{last}"
        yield f"| {key} | {api.name} | {versions} | {_right(rights[key], module)} | `{module}` |"
    yield ""


def _right(right: Right, module: str) -> str:
    if isinstance(right, Operation):
        return f"`{right.name}` on the cluster"
    asked = _asked_in(module) if right is Asked.BY_HANDLER and module not in _SHARED else []
    return ", ".join(f"`{operation}` on the {kind}" for operation, kind in asked) or _ELSEWHERE[right]


def _asked_in(module: str) -> list[tuple[str, str]]:
    """The rights that the code of a handler asks for, in the order in which they stand there."""
    spec = find_spec(f"ottla.broker.api.{module}")
    assert spec is not None
    assert spec.origin is not None
    found: dict[tuple[str, str], None] = {}
    for function in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                kind = _KINDS.get(call.func.attr) or _named_kind(call)
                if kind is not None:
                    # What a variable holds is one of those that its function speaks of.
                    for operation in _operations(*call.args) or _operations(function):
                        found[operation, kind] = None
    return list(found)


def _named_kind(call: ast.Call) -> str | None:
    """Of `may(operation, ResourceType.TOPIC, name)` and `may_for_some(operation, ResourceType.TOPIC)`."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr not in ("may", "may_for_some"):
        return None
    for each in call.args:
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "ResourceType":
            return each.attr.lower().replace("_", " ")
    return None


def _operations(*nodes: ast.AST) -> list[str]:
    return [
        each.attr
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id in ("Operation", "Rights")
        and each.attr in Operation.__members__
    ]
