"""`python -m tools.fuzz`: try every decoder, or those that are named, for so long each, and say what was found.

Exits with 1 if a decoder broke its word; the inputs that did it are in the directory `--into`, by target.
"""

from __future__ import annotations

import argparse
import importlib.util
import traceback
from pathlib import Path

from .engine import distil, explore, explore_with_atheris
from .seeds import keep
from .targets import TARGETS

CORPUS_BYTES_PER_TARGET = 4_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"some of {', '.join(TARGETS)}; all of them otherwise")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of our own engine")
    parser.add_argument("--engine", choices=("auto", "atheris", "own"), default="auto")
    parser.add_argument("--into", type=Path, default=Path(".cache/fuzz"))
    parser.add_argument("--distil", action="store_true", help="try nothing; add what is in --into to the corpus")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}")
    if options.distil:
        for name in options.targets or TARGETS:
            kept = distil(name, found=options.into, bytes_max=CORPUS_BYTES_PER_TARGET)
            if kept:
                keep(name, kept)
            print(f"{name:20} {len(kept):>5} inputs, {sum(map(len, kept)):>6} bytes")
        return 0
    has_atheris = importlib.util.find_spec("atheris") is not None
    if options.engine == "atheris" and not has_atheris:
        parser.error("atheris is not installed")
    if options.engine == "atheris" or (options.engine == "auto" and has_atheris):
        statuses = []
        for name in options.targets or TARGETS:
            status, tried = explore_with_atheris(name, seconds=options.seconds, into=options.into)
            print(f"{name:20} {tried:>9} inputs in {options.seconds:.0f} s, status {status}", flush=True)
            statuses.append(status)
        return 1 if any(statuses) else 0
    broken = 0
    for name in options.targets or TARGETS:
        tried, new, found = explore(name, seed=options.seed, seconds=options.seconds, into=options.into)
        print(f"{name:20} {tried:>9} inputs, {new:>5} kept, {len(found)} broken", flush=True)
        for each in found:
            broken += 1
            path = options.into / f"{name}-broken-{broken}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(each.data)
            print(f"  {path}: {''.join(traceback.format_exception_only(each.error)).strip()}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
