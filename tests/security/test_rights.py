"""No API is served whose rights nobody has thought of."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla.broker.api as api
from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.broker.forwarding import FORWARDABLE
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS, Asked

_API = Path(api.__file__).parent
_ELSEWHERE = {
    "fetch": _API.parent / "partition_reader.py",
    "on_controller": _API.parent / "admin_rights.py",
    "describe_cluster": _API.parent / "authorized_operations.py",
}
"""Where those ask that do not ask themselves."""


def test_every_api_of_a_broker_has_a_row() -> None:
    assert BROKER_RIGHTS.keys() == HANDLERS.keys()


def test_every_api_of_a_controller_has_a_row() -> None:
    assert CONTROLLER_RIGHTS.keys() == CONTROLLER_HANDLERS.keys()


def test_what_is_handed_on_is_judged_where_it_arrives() -> None:
    handed_on = {key for key, right in BROKER_RIGHTS.items() if right is Asked.BY_CONTROLLER}
    assert handed_on <= FORWARDABLE & CONTROLLER_RIGHTS.keys()
    assert not any(CONTROLLER_RIGHTS[key] in (Asked.NEVER, Asked.BY_CONTROLLER) for key in handed_on)
    assert handed_on >= {key for key, module in HANDLERS.items() if module == "forwarded"}


@pytest.mark.parametrize(
    "module",
    sorted(
        {
            modules[key]
            for rights, modules in ((BROKER_RIGHTS, HANDLERS), (CONTROLLER_RIGHTS, CONTROLLER_HANDLERS))
            for key, right in rights.items()
            if right is Asked.BY_HANDLER
        }
    ),
)
def test_a_handler_that_is_to_ask_does(module: str) -> None:
    source = _ELSEWHERE.get(module, _API / f"{module}.py").read_text()
    asks = ("context.may", "asker.may", "check_configs(context", "context.silently")
    assert any(question in source for question in asks), f"{module} asks for no right"
