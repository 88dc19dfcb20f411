"""What stands in the log is one line each, whatever clients call themselves."""

from __future__ import annotations

import io
import logging

from ottla.cli.settings import OneLineFormatter


def line(message: str, *arguments: object, error: Exception | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLineFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("ottla.test")
    logger.addHandler(handler)
    logger.error(message, *arguments, exc_info=error)
    return stream.getvalue()


def test_a_name_cannot_begin_a_line_of_its_own() -> None:
    forged = "x\n12:00:00 INFO ottla.audit: denied\r\x1b[2J\x85\u2028y"
    assert line("closed %s", forged) == (
        "ERROR ottla.test: closed x\\x0a12:00:00 INFO ottla.audit: denied\\x0d\\x1b[2J\\x85\\u2028y\n"
    )


def test_what_is_harmless_stays_as_it_is() -> None:
    assert line("%s", "größer → 100 %") == "ERROR ottla.test: größer → 100 %\n"


def test_a_traceback_keeps_its_lines_and_nothing_else() -> None:
    said = line("failed", error=ValueError("a\x1b[31mb"))
    assert said.startswith("ERROR ottla.test: failed\n")
    assert "a\\x1b[31mb" in said
