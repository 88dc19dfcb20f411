"""What the disk refuses is told with what to do about it."""

from __future__ import annotations

import errno
import os

import pytest

from ottla.errors import ErrorCode
from ottla.runtime import DiskError


def refused(number: int) -> DiskError:
    error = DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot read x")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "let this user read and write there"),
        (errno.EPERM, "let this user read and write there"),
        (errno.EROFS, "let this user read and write there"),
        (errno.ENOSPC, "make room on that disk"),
        (errno.EDQUOT, "make room on that disk"),
        (errno.EIO, "see that the disk is sound"),
    ],
)
def test_the_advice_fits_the_cause(number: int, advice: str) -> None:
    assert refused(number).told == f"cannot read x: {advice}"


def test_without_a_cause_it_is_the_disk() -> None:
    assert DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot read x").told == "cannot read x: see that the disk is sound"
