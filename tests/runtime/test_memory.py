"""Memory that is freed stays with the process that asked for it."""

from __future__ import annotations

import resource
import subprocess
import sys

PROGRAM = """
import resource, sys
from ottla.runtime.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    for _ in range(20):
        buffers = [bytearray(b"x") * (4 << 20) for _ in range(4)]
        del buffers
use()
before = faults()
use()
print(faults() - before)
"""


def faults(which: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, which], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_pages_are_asked_for_once() -> None:
    """80 buffers of 4 MiB have 81,920 pages of 4 KiB: asked for anew each time, or hardly ever."""
    pages = 20 * 4 * (4 << 20) // resource.getpagesize()
    assert faults("kept") < pages // 50
