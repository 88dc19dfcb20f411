"""`python -m tools.references`: every reference page, written anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla.config import reference as configuration
from ottla.metrics import reference as metrics
from tools.references import apis, commands, errors

DOCS = Path(__file__).parents[2] / "docs"

PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration.render,
    "metrics-reference.md": metrics.render,
    "api-reference.md": apis.render,
    "error-reference.md": errors.render,
    "command-reference.md": commands.render,
}


def main() -> None:
    for name, render in PAGES.items():
        (DOCS / name).write_text(render())


if __name__ == "__main__":
    main()
