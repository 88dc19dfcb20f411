"""What stands in the log is one line each, whatever clients call themselves, for people or as JSON."""

from __future__ import annotations

import io
import json
import logging

import pytest

from ottla.runtime.logs import VARIABLE, JsonFormatter, OneLineFormatter, log_format


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


def as_json(message: str, *arguments: object, who: str = "", **extra: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {"name": "ottla.test", "levelname": "INFO", "msg": message, "args": arguments, "created": 0.25, "msecs": 250}
        | extra
    )
    said = JsonFormatter(who).format(record)
    assert "\n" not in said
    assert said.isascii()
    told: dict[str, object] = json.loads(said)
    return told


def test_json_is_one_object_a_line() -> None:
    assert as_json("closed %s", 'x\n"\u2028ü') == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "INFO",
        "logger": "ottla.test",
        "message": 'closed x\n"\u2028ü',
    }


def test_fields_stand_by_themselves_in_json_and_behind_the_message_in_text() -> None:
    fields = {"api": "Produce", "client_id": "a\nb"}
    told = as_json("request", who="node-1", fields=fields)
    assert (told["node"], told["api"], told["client_id"]) == ("node-1", "Produce", "a\nb")
    record = logging.makeLogRecord({"msg": "request", "fields": fields})
    assert OneLineFormatter("%(message)s").format(record) == 'request api="Produce" client_id="a\\nb"'


def test_an_exception_is_told_with_its_line() -> None:
    try:
        raise ValueError("no good")
    except ValueError as error:
        told = as_json("failed", exc_info=(type(error), error, error.__traceback__))
    assert str(told["exception"]).endswith("ValueError: no good")


@pytest.mark.parametrize(
    ("wanted", "terminal", "format"),
    [("", True, "text"), ("", False, "json"), ("text", False, "text"), ("JSON", True, "json"), ("odd", True, "text")],
)
def test_people_get_text_and_collectors_json_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, wanted: str, terminal: bool, format: str
) -> None:
    monkeypatch.setenv(VARIABLE, wanted)
    monkeypatch.setattr("sys.stderr", Terminal() if terminal else io.StringIO())
    assert log_format() == format


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
