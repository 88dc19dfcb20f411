"""The reference pages are made from the code, and are as fresh as it."""

from __future__ import annotations

import re

import pytest

from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.cli.commands import TABLE
from ottla.errors import ErrorCode
from ottla.wire.apis import APIS
from tools.references import apis, commands, errors
from tools.references.__main__ import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run: make references"


def test_every_api_is_on_the_page_once_a_listener() -> None:
    served, _, missing = apis.render().partition("## Not served")
    for key, api in APIS.items():
        rows = re.findall(rf"^\| {key} \| {api.name} \|", served, re.MULTILINE)
        assert len(rows) == (key in HANDLERS) + (key in CONTROLLER_HANDLERS)
        assert (f"{api.name} ({key})" in missing) == (not rows)


def test_rights_are_those_that_handlers_ask_for() -> None:
    page = apis.render()
    assert "| Produce | 3–13 | `WRITE` on the topic, `WRITE` on the transactional id |" in page
    assert re.search(r"\| OffsetCommit \| [\d–]+ \| `READ` on the group, `READ` on the topic \|", page)
    assert re.search(r"\| AlterPartition \| [\d–]+ \| `CLUSTER_ACTION` on the cluster \|", page)


def test_every_error_is_explained() -> None:
    page = errors.render()
    for code in ErrorCode:
        assert re.search(rf"^\| {code.value} \| `{code.name}`( ★)? \| (yes)? ?\| [A-Z`].*\. \|$", page, re.MULTILINE)


def test_every_command_is_on_the_page_with_its_options() -> None:
    page = commands.render()
    for name in ("up", "node", "format", "sim", "registry", "console", "sql", "pipeline table", *TABLE):
        assert re.search(rf"^##+ ottla {name}( ★)?$", page, re.MULTILINE), name
    assert "`--nodes N`" in page
    assert "| `--partitions N`, `-p` |" in page
