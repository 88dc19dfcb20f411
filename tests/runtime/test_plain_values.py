"""What the processes of a node say to each other: values, and no code but what the node itself orders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pytest

from ottla.errors import ErrorCode
from ottla.runtime import DiskError
from ottla.runtime.disk import SystemDisk
from ottla.runtime.plain_values import NotPlain, read_order, read_values, write_plain


class Point(NamedTuple):
    x: int
    name: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    points: tuple[Point, ...]
    by_id: dict[int, Point]
    scale: float


SHAPE = Shape(points=(Point(1, b"\0\xff"), Point(-1, b"")), by_id={7: Point(2**60, b"x")}, scale=float("inf"))


def work(shape: Shape, apart: object) -> Shape:
    return shape


@pytest.mark.parametrize(
    "value", [None, True, 0, -(2**63), 1.5, "text\n", b"\0", [1, [2]], (1, ()), {"a": {1: None}}, ErrorCode.NONE, SHAPE]
)
def test_values_come_back_as_they_were(value: object) -> None:
    back = read_values(write_plain(value))
    assert back == value
    assert type(back) is type(value)


def test_an_error_comes_back_as_one() -> None:
    back = read_values(write_plain(DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "no")))
    assert isinstance(back, DiskError)
    assert (back.code, back.message) == (ErrorCode.KAFKA_STORAGE_ERROR, "no")


def test_an_order_may_name_a_function_and_its_arguments() -> None:
    order = read_order(write_plain(partial(work, SHAPE)))
    assert order(None) == SHAPE
    assert isinstance(read_order(write_plain(SystemDisk())), SystemDisk)


def test_what_cannot_be_found_by_its_name_is_not_said() -> None:
    class Local:
        def __init__(self) -> None:
            self.state = 1

    for value in (lambda: None, Local(), object):
        with pytest.raises(NotPlain):
            write_plain(value)


@pytest.mark.parametrize(
    "said",
    [
        ["function", "os:system"],
        ["call", ["function", "os:system"], ["true"]],
        ["object", "ottla.runtime.disk:SystemDisk"],
        ["value", "os:system", [["command", "true"]]],
        ["value", "subprocess:Popen", [["args", "true"]]],
        ["error", "subprocess:Popen", ["true"]],
        ["enum", "os:system", "true"],
        ["value", "a.module.that:is_not_loaded", []],
        ["error", "builtins:SystemExit", []],
        ["error", "builtins:exec", ["1/0"]],
        ["nothing"],
        [],
        [["list"]],
        ["bytes", 5],
        ["dict", [[["list", []], 1]]],
    ],
)
def test_a_worker_is_believed_values_and_nothing_else(said: object) -> None:
    with pytest.raises(NotPlain):
        read_values(json.dumps(said).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b"{", b"nul"])
def test_noise_is_no_value(data: bytes) -> None:
    with pytest.raises(NotPlain):
        read_values(data)
