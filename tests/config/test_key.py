"""Text to value and back, as Java does it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.key import ConfigKey, ConfigValue, InvalidConfig, Type, format_number, format_value, parse_value
from ottla.errors import MESSAGE_CHARS_MAX, ErrorCode


def parse(kind: Type, text: str) -> ConfigValue:
    return parse_value(ConfigKey("k", kind, None, ""), text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Type.STRING, " a ", "a"),
        (Type.PASSWORD, " a ", "a"),
        (Type.LIST, " a , b,, c ", ("a", "b", "", "c")),
        (Type.LIST, "  ", ()),
        (Type.INT, "+5", 5),
        (Type.INT, " -5 ", -5),
        (Type.LONG, "9223372036854775807", 2**63 - 1),
        (Type.SHORT, "-32768", -32768),
        (Type.DOUBLE, "1d", 1.0),
        (Type.DOUBLE, ".5", 0.5),
        (Type.DOUBLE, "5.", 5.0),
        (Type.DOUBLE, "-Infinity", -math.inf),
        (Type.DOUBLE, "0.3f", 0.3),
        (Type.BOOLEAN, " True ", True),
        (Type.CLASS, "java.lang.String", "java.lang.String"),
    ],
)
def test_text_that_java_reads(kind: Type, text: str, value: ConfigValue) -> None:
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Type.SHORT, "40000", "Not a number of type SHORT"),
        (Type.INT, "2147483648", "Not a number of type INT"),
        (Type.INT, "1_0", "Not a number of type INT"),
        (Type.INT, "0x4", "Not a number of type INT"),
        (Type.INT, "", "Not a number of type INT"),
        (Type.LONG, "5L", "Not a number of type LONG"),
        (Type.LONG, "9" * 100_000, "Not a number of type LONG"),
        (Type.DOUBLE, "inf", "Not a number of type DOUBLE"),
        (Type.DOUBLE, "1_0", "Not a number of type DOUBLE"),
        (Type.DOUBLE, "", "Not a number of type DOUBLE"),
        (Type.BOOLEAN, "yes", "Expected value to be either true or false"),
    ],
)
def test_text_that_java_refuses(kind: Type, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse(kind, text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    message = f"Invalid value {text} for configuration k: {reason}"
    assert refused.value.message == (
        message if len(message) <= MESSAGE_CHARS_MAX else f"{message[:MESSAGE_CHARS_MAX]}…"
    )


@pytest.mark.parametrize(
    "text",
    [
        "0.5",
        "1.0E7",
        "0.001",
        "9.9E-4",
        "1.23456789E8",
        "1000000.0",
        "9999999.0",
        "0.0",
        "-0.0",
        "Infinity",
        "2.147483647E9",
        "1.0E21",
        "0.1",
        "100.0",
        "1.7976931348623157E308",
        "-1.5E-7",
        "0.002",
        "1.0E22",
        "2.2250738585072014E-308",
        "1.2345678901234567",
    ],
)
def test_doubles_look_as_in_java(text: str) -> None:
    assert format_number(float(text)) == text


@given(st.floats(allow_nan=False))
def test_a_double_reads_back(value: float) -> None:
    assert parse(Type.DOUBLE, format_number(value)) == value


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters=",")).map(str.strip).filter(bool)))
def test_a_list_reads_back(entries: list[str]) -> None:
    assert parse(Type.LIST, format_value(tuple(entries)) or "") == tuple(entries)
