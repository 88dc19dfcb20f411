"""One target under libFuzzer: `python -m tools.fuzz.libfuzzer TARGET CORPUS… [-option=value…]`. Started by `engine`."""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["ottla"]):
        from tools.fuzz.seeds import seeds
        from tools.fuzz.targets import TARGETS

    target = TARGETS[name]
    for data in seeds(name):
        target.try_input(data)  # What is compiled at run time is there now, and can be instrumented too.
    atheris.instrument_all()
    atheris.Setup(sys.argv, target.try_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
