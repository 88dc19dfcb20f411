"""What is installed is what was looked at: every package that the product or its tests use is pinned, exactly.

An audit against a list of known holes needs a network and changes by the day; what can be held here, on every run, is
that nothing comes in unseen. Whoever changes `constraints.txt` has read what changed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.+!_-]+)")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = _PIN.fullmatch(line.split(";")[0].strip())
        assert match, f"{line!r} is not one exact version"
        name = normal(match["name"])
        assert found.get(name, match["version"]) == match["version"], f"{name} is pinned to two versions"
        found[name] = match["version"]
    return found


def declared() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    yield from map(Requirement, project["project"]["dependencies"])
    for extra in project["project"].get("optional-dependencies", {}).values():
        yield from map(Requirement, extra)
    for group in project["dependency-groups"].values():
        yield from (Requirement(each) for each in group if isinstance(each, str))


def used() -> dict[str, str]:
    """Installed packages that are declared, and those that they need in their turn, with their versions."""
    found: dict[str, str] = {}
    waiting = [(requirement, "") for requirement in declared()]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = normal(requirement.name)
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # An extra that is not installed here.
        found[name] = installed.version
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(Requirement(each), wanted) for each in installed.requires or ()]
    found.pop("ottla", None)
    return found


def test_every_package_in_use_is_pinned_to_the_version_that_is_installed() -> None:
    pinned, installed = pins(), used()
    assert len(installed) > 20, "hardly anything was looked at"
    unpinned = sorted(installed.keys() - pinned.keys())
    assert not unpinned, f"constraints.txt does not know {', '.join(unpinned)}"
    other = {name: (version, pinned[name]) for name, version in installed.items() if pinned[name] != version}
    assert not other, f"installed and pinned: {other}"


def test_what_is_declared_is_pinned_also_where_it_is_not_installed() -> None:
    missing = sorted({normal(each.name) for each in declared()} - pins().keys() - {"ottla"})
    assert not missing, f"constraints.txt does not know {', '.join(missing)}"


@pytest.mark.parametrize("name", ["typer", "cramjam", "google-re2"])
def test_a_package_of_the_product_is_found(name: str) -> None:
    assert name in used()
