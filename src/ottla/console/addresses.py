"""The addresses of pages. Names that a path cannot carry go into the query."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def topic(name: str, *rest: str) -> str:
    """Names of topics are letters, digits, dots, hyphens and underscores, in any Kafka."""
    return "/".join(("/topics", quote(name, safe=""), *rest))


def partition(name: str, number: int) -> str:
    return topic(name, "partitions", str(number))


def records(name: str, **query: str | int) -> str:
    return topic(name, "records") + (f"?{urlencode(query)}" if query else "")


def record(name: str, number: int, offset: int) -> str:
    """The page of records that begins with this one."""
    query: dict[str, str | int] = {"partition": number, "from": "offset", "offset": offset}
    return records(name, **query)


def group(name: str) -> str:
    """Any text may be a group's name: what browsers would take for a step in a path is asked for otherwise."""
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        return f"/group?{urlencode({'name': name})}"
    return f"/groups/{quote(name, safe='')}"


def subject(name: str, **query: str | int) -> str:
    return f"/schemas/subject?{urlencode({'name': name, **query})}"
