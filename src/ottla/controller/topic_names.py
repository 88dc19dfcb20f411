"""Which names a topic may have. They are names of directories, and of metrics."""

from __future__ import annotations

import re

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import TopicsImage, collision_key

NAME_CHARS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "a directory cannot be called that"
    elif len(name) > NAME_CHARS_MAX:
        reason = f"it is {len(name)} characters long, and at most {NAME_CHARS_MAX} are allowed"
    elif _LEGAL.fullmatch(name) is None:
        reason = "it may only have ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    shown = name if len(name) <= 64 else name[:64] + "…"
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {shown!r} is not allowed: {reason}.")


def check_collision(name: str, topics: TopicsImage) -> None:
    """Metrics cannot tell '.' from '_', so names may not differ in that alone."""
    key = collision_key(name)
    others = topics.collisions.get(key) if key is not None else None
    if others and name not in others:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {others[0]}, since metrics cannot tell '.' from '_'.",
        )
