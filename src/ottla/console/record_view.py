"""One record as a person sees it. Pure: nothing that is in a record becomes markup."""

from __future__ import annotations

from ottla.console import addresses
from ottla.console.decoding import Decoded, Decoder, indented
from ottla.console.markup import Child, Markup, tag
from ottla.console.reading import SeenRecord
from ottla.console.units import count, moment, size

PREVIEW_CHARS = 300
TEXT_CHARS_MAX = 64 * 1024
"""What is longer can be downloaded."""


def record_view(topic: str, seen: SeenRecord, decoder: Decoder) -> Markup:
    record = seen.record
    key, value = decoder.decode(record.key), decoder.decode(record.value)
    name = f"{seen.partition}-{record.offset}"
    return tag(
        "details",
        tag(
            "summary",
            tag("span", f"p {seen.partition}", class_="place", title=f"partition {seen.partition}"),
            tag("span", count(record.offset), class_="place offset", title=f"offset {record.offset}"),
            tag("span", moment(record.timestamp), class_="when"),
            _preview(key, "key"),
            _preview(value, "value"),
        ),
        tag(
            "div",
            _part(topic, seen, "key", key, record.key, name),
            _part(topic, seen, "value", value, record.value, name),
            _headers(record.headers),
            class_="body",
        ),
        class_="record",
        data_key=name,
    )


def _preview(decoded: Decoded, kind: str) -> Markup:
    if decoded.kind in ("null", "empty"):
        return tag("span", f"{decoded.kind} {kind}", class_=f"{kind} none")
    return tag("span", decoded.text[:PREVIEW_CHARS], class_=kind)


def _part(topic: str, seen: SeenRecord, kind: str, decoded: Decoded, data: bytes | None, name: str) -> Child:
    if data is None:
        return tag("h3", f"{kind}: null")
    text = indented(decoded.value) if decoded.is_structured else decoded.text
    place = f"{kind}-{name}"
    address = addresses.topic(topic, "records", str(seen.partition), str(seen.record.offset), kind)
    cut = len(text) > TEXT_CHARS_MAX
    return [
        tag(
            "h3",
            f"{kind}: {decoded.kind}, {size(len(data))}",
            tag("button", "Copy", type="button", data_copy=place, aria_label=f"Copy the {kind}"),
            tag("a", "Download", href=address, download=True, class_="button", aria_label=f"Download the {kind}"),
        ),
        tag("pre", text[:TEXT_CHARS_MAX], id=place, tabindex="0"),
        tag("p", "This is the beginning of it: download it to see the rest.", class_="quiet") if cut else None,
    ]


def _headers(headers: tuple[tuple[str, bytes | None], ...]) -> Child:
    if not headers:
        return None
    lines = [f"{name}: {'null' if data is None else data.decode('utf-8', 'replace')}" for name, data in headers]
    return [tag("h3", count(len(headers), "header")), tag("pre", "\n".join(lines)[:TEXT_CHARS_MAX], tabindex="0")]
