"""`make audit`: asks a database of known holes about every package that constraints.txt pins.

The database is OSV's, which collects the advisories of all ecosystems. Status 1 if it knows of anything, with a line
for each. Where it cannot be reached nothing was audited: that is said, and is status 2, or 0 with `--where-reachable`
for machines that have no way out.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

DATABASE = "https://api.osv.dev"
CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
TIMEOUT_S = 20
ECOSYSTEM = "PyPI"

FINE, FOUND, UNREACHABLE = 0, 1, 2


def pinned(text: str) -> list[tuple[str, str]]:
    """Name and version of each line `name==version`."""
    found = []
    for line in text.splitlines():
        name, equals, version = line.partition("#")[0].partition(";")[0].strip().partition("==")
        if equals:
            found.append((name.strip(), version.strip()))
    return found


def ask(database: str, packages: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The advisories on each package, by their ids. Raises `OSError` or `ValueError` where there is no answer."""
    queries = [{"package": {"name": name, "ecosystem": ECOSYSTEM}, "version": version} for name, version in packages]
    request = urllib.request.Request(
        f"{database}/v1/querybatch",
        data=json.dumps({"queries": queries}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        results = json.load(answer)["results"]
    if len(results) != len(packages):
        raise ValueError(f"{len(results)} answers to {len(packages)} questions")
    return [[hole["id"] for hole in result.get("vulns", ())] for result in results]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools.audit", description=__doc__)
    parser.add_argument("--where-reachable", action="store_true", help="an unreachable database is no failure")
    parser.add_argument("--database", default=DATABASE)
    parser.add_argument("--constraints", type=Path, default=CONSTRAINTS)
    options = parser.parse_args(given)
    packages = pinned(options.constraints.read_text())
    try:
        holes = ask(options.database, packages)
    except (OSError, ValueError, KeyError) as error:
        print(f"Nothing was audited: {options.database} does not answer ({error}). Run `make audit` where it does.")
        return FINE if options.where_reachable else UNREACHABLE
    for (name, version), ids in zip(packages, holes, strict=True):
        for each in ids:
            print(f"{name} {version}: {each}")
    count = sum(map(len, holes))
    print(f"{len(packages)} packages were audited, {count} known holes.")
    return FOUND if count else FINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
