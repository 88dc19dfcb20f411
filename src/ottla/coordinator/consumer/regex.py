"""Regular expressions that members subscribe by, tried on the names of all topics.

They come over the wire and are tried by the coordinator, so they are RE2's: linear in the text, bounded in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.config.group import Pattern


def compile_regex(text: str) -> Pattern:
    import re2  # Here, because few nodes ever see a pattern.

    options = re2.Options()
    options.log_errors = False
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it does not parse"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}.",
        ) from None
    return pattern


def resolve(patterns: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """For each pattern the topics whose whole name it matches."""
    names = list(topics)
    found: dict[str, frozenset[str]] = {}
    for text in patterns:
        try:
            pattern = compile_regex(text)
        except KafkaError:  # One that another release took, and that came by the log.
            found[text] = frozenset()
        else:
            found[text] = frozenset(name for name in names if pattern.fullmatch(name))
    return found
