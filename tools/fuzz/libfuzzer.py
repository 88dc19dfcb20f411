"""One target under libFuzzer: `python -m tools.fuzz.libfuzzer TARGET CORPUS… [-option=value…]`. Started by `engine`."""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["ottla"]):
        from ottla.wire.message import Message
        from tools.fuzz.seeds import seeds
        from tools.fuzz.targets import TARGETS

        target = TARGETS[name]
        for data in seeds(name):
            target.try_input(data)  # What is loaded or compiled at run time is there now, and instrumented too.
    for kind in Message.__subclasses__():
        for version, decoder in kind._decoders.items():
            kind._decoders[version] = atheris.instrument_func(decoder)
    atheris.Setup(sys.argv, target.try_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
