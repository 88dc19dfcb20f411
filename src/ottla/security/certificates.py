"""Who a certificate names: its subject as Java writes it (RFC 2253), and the rules that make a user's name of that.

Only the subject of the certificate, and its alternative names, are read, out of its DER, in one pass; that the
certificate is worth anything was checked by TLS before. Rules are tried in order, each on the whole name; what no rule
matches is refused.

    RULE:pattern/replacement/[LU],DEFAULT
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.security.sasl import AuthenticationFailed

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 has names for; the values of all others are shown as bytes."""

_ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 27: "latin-1", 28: "utf-32-be", 30: "utf-16-be"}
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_ALTERNATIVE_NAMES = "2.5.29.17"
_ESCAPED = set(',=+<>#;"\\')


class _Element(NamedTuple):
    tag: int
    start: int
    end: int


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate (DER), last part first, as Java's X500Principal says it."""
    try:
        _, _, _, _, subject = _fields(certificate)[:5]  # Serial number, signature, issuer and validity come first.
        parts = []
        for relative in _elements(certificate, subject.start, subject.end):
            attributes = [
                _attribute(certificate, each) for each in _elements(certificate, relative.start, relative.end)
            ]
            parts.append("+".join(attributes))
    except (IndexError, ValueError, StopIteration):
        raise AuthenticationFailed("the certificate cannot be read") from None
    return ",".join(reversed(parts))


def alternative_names(certificate: bytes) -> frozenset[tuple[int, bytes]]:
    """What else the certificate (DER) is good for, each as its kind (GeneralName's tag in RFC 5280) and its bytes."""
    try:
        extensions = next((field for field in _fields(certificate) if field.tag == _EXTENSIONS), None)
        if extensions is None:
            return frozenset()
        listed = next(_elements(certificate, extensions.start, extensions.end))
        for extension in _elements(certificate, listed.start, listed.end):
            kind, *_, value = _elements(certificate, extension.start, extension.end)
            if _oid(certificate[kind.start : kind.end]) == _ALTERNATIVE_NAMES:
                names = next(_elements(certificate, value.start, value.end))
                return frozenset(
                    (name.tag, certificate[name.start : name.end])
                    for name in _elements(certificate, names.start, names.end)
                )
    except (IndexError, ValueError, StopIteration):
        raise AuthenticationFailed("the certificate cannot be read") from None
    return frozenset()


def identity_change(old: bytes, new: bytes, *, allow_dn: bool, allow_san: bool) -> str | None:
    """What keeps a certificate (DER) from taking the place of another at run time: it must name the same subject, and
    all alternative names of the other, unless that may change. None if nothing does."""
    old_name, new_name = distinguished_name(old), distinguished_name(new)
    if not allow_dn and _canonical(old_name) != _canonical(new_name):
        return f"its distinguished name is {new_name!r} and was {old_name!r}: set ssl.allow.dn.changes=true to allow it"
    if not allow_san and (missing := alternative_names(old) - alternative_names(new)):
        shown = ", ".join(
            sorted(content.decode("latin-1") if tag & 0x1F < 7 else content.hex() for tag, content in missing)
        )
        return f"it lacks the alternative names {shown}: set ssl.allow.san.changes=true to allow it"
    return None


def _canonical(name: str) -> str:
    """As Java compares names: case does not count, nor how much space there is."""
    return " ".join(name.casefold().split())


def _fields(certificate: bytes) -> list[_Element]:
    """Those of the part that is signed, from the serial number on."""
    body = next(_elements(certificate, *_inside(certificate, 0)))
    fields = list(_elements(certificate, body.start, body.end))
    return fields[1:] if fields[0].tag == _VERSION else fields


def _inside(data: bytes, position: int) -> tuple[int, int]:
    element = next(_elements(data, position, len(data)))
    return element.start, element.end


def _elements(data: bytes, position: int, end: int) -> Iterator[_Element]:
    """The elements of DER that lie side by side; `IndexError` or `ValueError` where they do not fit."""
    while position < end:
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("a length")
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > end:
            raise ValueError("an element that is longer than what it is in")
        yield _Element(tag, position, position + size)
        position += size


def _attribute(data: bytes, pair: _Element) -> str:
    kind, value = _elements(data, pair.start, pair.end)
    oid = _oid(data[kind.start : kind.end])
    keyword = _KEYWORDS.get(oid)
    encoding = _ENCODINGS.get(value.tag)
    content = data[value.start : value.end]
    if keyword is None or encoding is None:
        header = 2 if len(content) < 128 else 2 + (len(content).bit_length() + 7) // 8
        return f"{keyword or oid}=#{data[value.start - header : value.end].hex()}"
    return f"{keyword}={_escape(content.decode(encoding))}"


def _oid(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escape(text: str) -> str:
    escaped = "".join(f"\\{character}" if character in _ESCAPED else character for character in text)
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(escaped.rstrip(" ")) if leading < len(escaped) else 0
    middle = escaped[leading : len(escaped) - trailing]
    return "\\ " * leading + middle + "\\ " * trailing


# From the subject to the name of a user.


class BadMappingRules(Exception):
    """`ssl.principal.mapping.rules` is not what it should be; the message is one sentence."""


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_REFERENCE = re.compile(r"\$(\d+)|\\(.)")

MapName = Callable[[str], str]


def parse_mapping_rules(text: str) -> MapName:
    """From the text of the rules to what they do. Raises `BadMappingRules`."""
    rules: list[_Rule | None] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise BadMappingRules(
                "ssl.principal.mapping.rules must be DEFAULT or RULE:pattern/replacement/[LU], with commas between them"
            )
        position = found.end()
        rules.append(None if found[1] else _Rule.parse(found[2], found[3], found[4]))

    def name_of(subject: str) -> str:
        for rule in rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise AuthenticationFailed(f"no rule of ssl.principal.mapping.rules applies to {subject!r}")

    return name_of


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str

    @staticmethod
    def parse(pattern: str, replacement: str, case: str) -> _Rule:
        import re2  # Linear in the name, which a stranger's certificate authority may have chosen.

        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern.replace("\\/", "/"), options)
        except re2.error:
            raise BadMappingRules(f"ssl.principal.mapping.rules: {pattern} is no regular expression") from None
        highest = max((int(each[1]) for each in _REFERENCE.finditer(replacement) if each[1]), default=0)
        if highest > compiled.groups:
            raise BadMappingRules(f"ssl.principal.mapping.rules: {pattern} has no group {highest}")
        return _Rule(compiled, replacement, case)

    def apply(self, subject: str) -> str | None:
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _REFERENCE.sub(lambda each: (found[int(each[1])] or "") if each[1] else each[2], self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name
