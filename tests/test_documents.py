"""What the documents point at is there: files, tests and tables do not move away from under them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.log import files

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/examples.md",
    "docs/file-format.md",
    "docs/groups.md",
    "docs/how/coordinators.md",
    "docs/how/kraft.md",
    "docs/how/replication.md",
    "docs/how/storage.md",
    "docs/simulator.md",
    "docs/testing.md",
]
LINKED = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]
PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py|\.md)?|[a-z_]+(?:/[a-z_]+)+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_is_named_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = [found for found in PATH.findall(text) if not found.startswith("health")]
    for path in named:
        module = path.removesuffix("/") if path.endswith(("/", ".py", ".md")) else f"{path}.py"
        places = [ROOT / path, ROOT / "src/ottla" / path, ROOT / "src/ottla" / module, ROOT / module]
        assert any(place.exists() for place in places), f"{document} names {path}"


@pytest.mark.parametrize("document", LINKED)
def test_every_link_leads_somewhere(document: str) -> None:
    """Also where no site is built: on a page of the repository. What is in a code block is no link."""
    place = ROOT / document
    for link in LINK.findall(CODE.sub("", place.read_text())):
        assert (place.parent / link).exists(), f"{document} links to {link}"


def test_every_file_of_a_data_directory_is_described() -> None:
    text = (ROOT / "docs/file-format.md").read_text()
    names = [value for name, value in vars(files).items() if name.isupper() and not name.startswith("_")]
    kept = [
        name
        for name in names
        if isinstance(name, str) and name not in (files.CLEANER_CHECKPOINT, files.FUTURE_DIRECTORY)
    ]
    assert len(kept) > 15
    assert [name for name in kept if name not in text] == []


def test_the_layout_of_a_batch_is_the_one_in_the_code() -> None:
    from ottla.records import batch

    text = (ROOT / "docs/file-format.md").read_text()
    rows = {int(at): what.strip() for at, what in re.findall(r"^\| (\d+) \| \d* ?\| ([^|]*)\|", text, re.MULTILINE)}
    assert rows[batch.LENGTH_POSITION] == "batch length"
    assert rows[batch.LEADER_EPOCH_POSITION] == "leader epoch"
    assert rows[batch.MAGIC_POSITION] == "magic"
    assert rows[batch.CRC_POSITION] == "CRC-32C"
    assert rows[batch.ATTRIBUTES_POSITION] == "attributes"
    assert rows[batch.BASE_TIMESTAMP_POSITION] == "base timestamp"
    assert rows[batch.MAX_TIMESTAMP_POSITION] == "max timestamp"
    assert rows[batch.HEADER_SIZE] == "records"
