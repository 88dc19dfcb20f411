"""Which versions of PySpark and of its companions the source and the sink work with: others are refused in a sentence,
before they fail in their own ways."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

PYSPARK_MIN = (4, 2)
PANDAS_END = 3
"""PySpark does not know pandas from this version on."""
PYARROW_MIN = 18


class SparkUnavailable(Exception):
    """The pipeline cannot run here; the message is one sentence that says what to install."""


def check_versions() -> None:
    """Raises `SparkUnavailable`."""
    spark = _version("pyspark")
    if spark is None:
        raise SparkUnavailable('PySpark is not installed: pip install "ottla[spark]".')
    if spark < PYSPARK_MIN:
        said = ".".join(map(str, spark))
        raise SparkUnavailable(f'PySpark {said} is too old: pip install "pyspark>=4.2" (or "ottla[spark]").')
    arrow = _version("pyarrow")
    if arrow is None or arrow[0] < PYARROW_MIN:
        raise SparkUnavailable(f'PyArrow is missing or too old: pip install "pyarrow>={PYARROW_MIN}".')
    pandas = _version("pandas")
    if pandas is not None and pandas[0] >= PANDAS_END:
        raise SparkUnavailable('PySpark does not work with pandas 3: pip install "pandas<3".')


def _version(package: str) -> tuple[int, ...] | None:
    try:
        said = version(package)
    except PackageNotFoundError:
        return None
    return tuple(int(number) for number in re.findall(r"\d+", said)[:2])
