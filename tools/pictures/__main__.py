"""`python -m tools.pictures [NAME …]`: the pictures of docs/how, all of them or those that are named."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tools.pictures.scenes import SCENES

DIRECTORY = Path(__file__).parents[2] / "docs" / "how" / "pictures"


def main() -> None:
    logging.getLogger("ottla").setLevel(logging.CRITICAL)  # What nodes say of their troubles is part of the scene.
    for name in sys.argv[1:] or SCENES:
        (DIRECTORY / f"{name}.svg").write_text(SCENES[name]())
        print(f"{name}.svg")


if __name__ == "__main__":
    main()
