"""`python -m tests.roomy_node up …`: a node whose volumes have room, however full the machine's disk is.

For tests that look at what a cluster that is well is said to be.
"""

from __future__ import annotations

from ottla.cli import main
from ottla.runtime.disk import SystemDisk

TOTAL_BYTES = 1 << 40


def space(self: SystemDisk, path: str) -> tuple[int, int]:
    return TOTAL_BYTES, TOTAL_BYTES // 2


if __name__ == "__main__":
    SystemDisk.space = space  # type: ignore[method-assign]
    main()
