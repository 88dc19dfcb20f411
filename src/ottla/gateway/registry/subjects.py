"""Names of subjects, and the context that a name may begin with: `:.context:subject`.

Each context has its own ids. The default one is `.` and stays unwritten.
"""

from __future__ import annotations

from ottla.gateway.registry.refusals import invalid_subject

DEFAULT_CONTEXT = "."
CONTEXT_WILDCARD = ":*:"
GLOBAL_SUBJECT = "__GLOBAL"
"""Names that Confluent keeps for itself."""
_RESERVED = frozenset({GLOBAL_SUBJECT, "__EMPTY"})
NAME_CHARS_MAX = 1000


def normalize(subject: str) -> str:
    """The name without a context that need not be said."""
    default = f":{DEFAULT_CONTEXT}:"
    return subject[len(default) :] if subject.startswith(default) else subject


def context_of(subject: str) -> str:
    if subject.startswith(":."):
        end = subject.find(":", 1)
        if end > 0:
            return subject[1:end]
    return DEFAULT_CONTEXT


def prefix_of(context: str) -> str:
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def is_context(subject: str) -> bool:
    """Does the name stop after its context, and so stand for all subjects in it?"""
    return subject.startswith(":.") and subject.endswith(":") and subject.count(":") == 2


def check(subject: str, *, may_be_context: bool = False) -> str:
    """The name as it is kept. Raises `Refusal` for one that no subject can have."""
    usable = subject and len(subject) <= NAME_CHARS_MAX and subject not in _RESERVED and subject.isprintable()
    if not usable or (is_context(subject) and not may_be_context):
        raise invalid_subject(subject[:NAME_CHARS_MAX])
    return normalize(subject)
