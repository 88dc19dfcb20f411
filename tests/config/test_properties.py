"""Java's properties format. The expected pairs were read by `java.util.Properties` from the same text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.key import InvalidConfig
from ottla.config.properties import format_properties, parse_properties

JAVA = [
    ("a=1\nb:2\nc 3\nd\te\n", {"a": "1", "b": "2", "c": "3", "d": "e"}),
    ("# no\n! no\n  # no\n a = 1 # yes\n", {"a": "1 # yes"}),
    ("a==1\nb = = 2\nc : : 3\nd  \t\f= x", {"a": "=1", "b": "= 2", "c": ": 3", "d": "x"}),
    ("a=1\\\n   2\\\n\t3\nb=x\\\\\nc=y\\", {"a": "123", "b": "x\\", "c": "y"}),
    ("a=1\\\n# not a comment\n", {"a": "1# not a comment"}),
    ("a=1\\\r\n  2\rb=3", {"a": "12", "b": "3"}),
    ('k\\ ey\\=\\:=v\\tw\\n\\f\\r\\q\\"', {"k ey=:": 'v\tw\n\f\rq"'}),
    ("\\u0061=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
    ("a\n=b\n:c\n", {"a": "", "": "c"}),
    ("a=  trailing  \n", {"a": "trailing  "}),
    ("a=1\na=2", {"a": "2"}),
    ("\\\nb=1\n\\#a=1", {"b": "1", "#a": "1"}),
    ("é=ü", {"é": "ü"}),
    ("a=x\\\n\nb=1", {"a": "x", "b": "1"}),
    ("", {}),
    ("\\", {"": ""}),
    ("a=1\n\\\n\nb=2", {"a": "1", "b": "2"}),
]


@pytest.mark.parametrize(("text", "pairs"), JAVA)
def test_reads_as_java_does(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="uxxxx"):
        parse_properties("a=\\u12g4")


def test_writes_what_kafka_writes() -> None:
    text = format_properties({"cluster.id": "kwhzKuVRQMKpLwHF3ULw5Q", "version": "1"}, comments=("", "Sun Nov 15"))
    assert text == "#\n#Sun Nov 15\ncluster.id=kwhzKuVRQMKpLwHF3ULw5Q\nversion=1\n"
    assert format_properties({" a b": " c  d", "é": "😀#=:!\\"}) == (
        "\\ a\\ b=\\ c  d\n\\u00E9=\\uD83D\\uDE00\\#\\=\\:\\!\\\\\n"
    )


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_reads_back(pairs: dict[str, str]) -> None:
    text = format_properties(pairs)
    assert text.isascii()
    assert parse_properties(text) == pairs


@given(st.text(alphabet="ab=: \\\n\r\t\f#!u0041"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        pairs = parse_properties(text)
    except InvalidConfig:
        return
    assert parse_properties(format_properties(pairs)) == pairs
