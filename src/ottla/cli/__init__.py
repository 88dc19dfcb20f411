"""The `ottla` command: composition. Builds nodes and what surrounds them, and speaks to the person at the terminal."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> None:
    """The console script. A `StartupError` is one sentence on standard error and status 1, or 2 if it is of usage."""
    from ottla.cli.quick import find
    from ottla.errors import KafkaError, StartupError, UsageError

    try:
        quick = find(sys.argv[1:])
        if quick is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                # Until the node has an event loop there is nothing to stop but this process.
                signal.signal(number, lambda *_: sys.exit(0))
            quick()
            return
        from ottla.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except StartupError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except KafkaError as error:
        from ottla.cli.next_steps import sentence

        _fail(sentence(error))
    except UnicodeEncodeError as error:
        shown = error.object.encode(errors="backslashreplace").decode()
        _fail(f"{shown[:200]} is no text in UTF-8, as it has to be here.")
    except OSError as error:
        # The machine refused something that the node cannot do without: its own words say it best.
        what = f"{error.filename} cannot be used: " if error.filename is not None else ""
        _fail(f"{what}{error.strerror or error}.")


def _fail(sentence: str, status: int = 1) -> NoReturn:
    """What clusters and registries say is told, and cannot speak to the terminal."""
    from ottla.cli.output import visible

    print(f"ottla: {visible(sentence)}", file=sys.stderr)
    sys.exit(status)
