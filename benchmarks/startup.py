"""`python -m benchmarks.startup`: what everything that can be installed beside Ottla costs the start of `ottla up`.

Two environments are made of links to what is installed here: one with Ottla's own requirements alone, as `pip install
ottla` gives it, and one with all extras. In each, in turn, `ottla up` is started on an empty directory and timed to its
line `ready`; where there are extras, with the schema registry and the console that come with them. `--check` fails
where the median of the second is more than a tenth above that of the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
STARTS = 25
RATIO_MAX = 1.1


def requirements(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


def closure(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """What is installed of these, and of what they need in their turn."""
    found: dict[str, Distribution] = {}
    waiting = [(each, "") for each in wanted]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = requirement.name.lower().replace("_", "-")
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        if name in found and not requirement.extras:
            continue
        found[name] = installed
        for text in installed.requires or ():
            waiting += [(Requirement(text), each) for each in ("", *requirement.extras)]
    return found


def environment(directory: Path, packages: Iterable[Distribution]) -> Path:
    """A virtual environment with links to these packages and to Ottla as it stands here; its Python."""
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    for package in packages:
        for top in {Path(str(file)).parts[0] for file in package.files or () if ".." not in Path(str(file)).parts}:
            source, target = Path(str(package.locate_file(top))), site / top
            if source.exists() and not target.exists() and top != "__pycache__":
                target.symlink_to(source)
    (site / "ottla").symlink_to(ROOT / "src" / "ottla")
    return directory / "bin" / "python"


def start_ms(python: Path, *options: str) -> float:
    """From the command to its line `ready`."""
    with TemporaryDirectory(prefix="ottla-startup-") as data:
        began = time.perf_counter()
        process = subprocess.Popen(
            [python, "-m", "ottla.cli", "up", "--port", "0", "--data", data, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = 1000 * (time.perf_counter() - began)
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert line.startswith("ready: "), said
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--starts", type=int, default=STARTS)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="ottla-environments-") as directory:
        core = closure(requirements())
        everything = closure(requirements("web", "spark", "oauth"))
        starts = {
            f"Ottla alone, {len(core)} packages": (environment(Path(directory, "core"), core.values()), ()),
            f"with all extras, {len(everything)} packages": (
                environment(Path(directory, "all"), everything.values()),
                ("--registry", "127.0.0.1:0"),
            ),
        }
        taken: dict[str, list[float]] = {name: [] for name in starts}
        for number in range(arguments.starts + 2):
            for name, (python, options) in starts.items():
                measured = start_ms(python, *options)
                if number >= 2:  # The first ones bring files into memory.
                    taken[name].append(measured)
    for name, times in taken.items():
        most = quantiles(times, n=20)[-1]
        print(f"{name}: {median(times):.0f} ms at the median of {len(times)}, 95 % within {most:.0f} ms")
    alone, all_extras = (median(times) for times in taken.values())
    print(f"ratio {all_extras / alone:.3f}, at most {RATIO_MAX} wanted")
    if arguments.check and all_extras > RATIO_MAX * alone:
        sys.exit("Ottla starts too slowly with all its extras installed.")


if __name__ == "__main__":
    main()
