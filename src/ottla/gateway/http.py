"""What requests about schemas and about records have in common: a query, and a refusal with its code."""

from __future__ import annotations

from urllib.parse import parse_qs

QUERY_FIELDS_MAX = 100


class Refusal(Exception):
    """A code, whose first three digits are HTTP's, and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def not_found() -> Refusal:
    return Refusal(404, "HTTP 404 Not Found")


class Query:
    """What stands behind the question mark; of names that come twice, the last counts."""

    def __init__(self, text: str) -> None:
        try:
            self._values = parse_qs(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
        except ValueError:
            raise Refusal(400, "The query cannot be read.") from None

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, [default])[-1]

    def texts(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
            raise not_found()
        return int(text)
