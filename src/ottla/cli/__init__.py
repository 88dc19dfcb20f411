"""The `ottla` command: composition. Builds nodes and what surrounds them, and speaks to the person at the terminal."""

from __future__ import annotations

import sys


def main() -> None:
    """The console script. A `StartupError` is one sentence on standard error and status 1."""
    from ottla.cli.quick import find
    from ottla.errors import KafkaError, StartupError

    try:
        quick = find(sys.argv[1:])
        if quick is not None:
            quick()
            return
        from ottla.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except StartupError as error:
        print(f"ottla: {error}", file=sys.stderr)
        sys.exit(1)
    except (OSError, KafkaError) as error:
        # The machine refused something that the node cannot do without: its own words say it best.
        print(f"ottla: {error.message if isinstance(error, KafkaError) else error}", file=sys.stderr)
        sys.exit(1)
