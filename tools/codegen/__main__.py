"""`python -m tools.codegen DIRECTORY_OF_JARS [--check]`: see the package's docstring."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.codegen.definitions import load
from tools.codegen.emit import index_text, module_text

TARGET = Path(__file__).parents[2] / "src" / "ottla" / "wire" / "messages"
WRITTEN_BY_HAND = {"__init__.py"}


def generate(jars: Path) -> dict[str, str]:
    """File names and their text."""
    release, definitions = load(jars)
    files = {f"{definition.module}.py": module_text(definition, release) for definition in definitions}
    assert len(files) == len(definitions)
    files["_index.py"] = index_text(definitions, release)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.codegen", description="Write the wire's message classes.")
    parser.add_argument("jars", type=Path, help="a directory with Apache Kafka's jars")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    options = parser.parse_args()
    files = generate(options.jars)
    TARGET.mkdir(parents=True, exist_ok=True)
    present = {path.name: path.read_text() for path in TARGET.glob("*.py") if path.name not in WRITTEN_BY_HAND}
    changed = sorted(name for name in {*files, *present} if files.get(name) != present.get(name))
    if not options.check:
        for name in changed:
            if name in files:
                (TARGET / name).write_text(files[name])
            else:
                (TARGET / name).unlink()
    print(f"{len(files)} files, {len(changed)} changed")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
