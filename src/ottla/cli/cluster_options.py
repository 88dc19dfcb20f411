"""Options that say which cluster a command means and how it logs in, where `session.command` does not add them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import complete

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Brokers of the cluster; 127.0.0.1:9092 if no profile says otherwise.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A cluster of `ottla profile list`.", autocompletion=complete.profiles),
]
CommandConfig = Annotated[Path | None, typer.Option(metavar="FILE", help="A client's properties file.")]
Properties = Annotated[list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="One of a client's properties.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, one object a line.")]
