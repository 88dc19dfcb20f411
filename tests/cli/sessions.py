"""Sessions of the command line as text: commands, what they print, and how they end.

A transcript has blocks like

    $ ottla topic create orders -p 2
    topic orders created

A line that begins with `$` is run: `ottla` in this process, after `printf '…' |` with that as its standard input, and
`> FILE` or `>> FILE` writes what comes out to a file of the session's own directory. What it prints follows, standard
error with a `!` in front, and, if it did not end well, its status in brackets. `$BOOTSTRAP` and others are names of
the session. Times, ids and sizes differ from run to run: they are written as `<time>`, `<id>` and so on.
`--rewrite` writes what happened into the file; look at the difference before it is committed.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

_NORMAL = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "<time>"),
    (re.compile(r"\b1[789]\d{11}\b"), "<ms>"),
    (re.compile(r"\b(id |topic_id\": \"|cluster_id\": \"|directory_id\": \"|cluster )[A-Za-z0-9_-]{22}"), r"\1<id>"),
    (re.compile(r"\b[a-z][A-Za-z0-9-]*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<member>"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d{2,5}\b"), "<port>"),
    (re.compile(r"\bport\": \d+"), 'port": <port>'),
    (re.compile(r"\b\d+(\.\d)? (B|KiB|MiB|GiB|TiB)(?=$|\")", re.MULTILINE), "<size>"),
    (re.compile(r"size_bytes\": \d+"), 'size_bytes": <size>'),
    (re.compile(r"\b\d+ s in the future"), "<number> s in the future"),
    (re.compile(r"\b\d+\.\d % are free"), "<number> % are free"),
    (re.compile(r"\b(committed to|leader) +\d+(?! in)"), r"\1 <offset>"),
    (re.compile(r"\bcrc [0-9a-f]{8}"), "crc <crc>"),
    (re.compile(r"\bproducer \d+/"), "producer <id>/"),
    (re.compile(r"\b\d+(\.\d+)? (records\/s|MB\/s|ms at)"), r"<number> \2"),
)


def run_ottla(arguments: list[str], stdin: bytes = b"") -> tuple[int, bytes, str]:
    """The command in this process: its status, standard output and standard error."""
    from ottla.cli import main

    out, err = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    status: object = 0
    with (
        mock.patch.object(sys, "argv", ["ottla", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    stdout.flush()
    return int(str(status)), out.getvalue(), err.getvalue()


def replay(text: str, directory: Path, names: Mapping[str, str]) -> str:
    """The transcript as it goes now."""
    written: list[str] = []
    for line in text.splitlines():
        if line.startswith("#") or (not line and written and not written[-1].startswith("$")):
            if line.startswith("#") or (written and written[-1] != ""):
                written.append(line)
            continue
        if not line.startswith("$ "):
            continue  # What it printed the last time.
        if written and written[-1] != "" and not written[-1].startswith("#"):
            written.append("")
        written.append(line)
        written += _run(line[2:], directory, names)
    return "\n".join(written).rstrip("\n") + "\n"


def _run(line: str, directory: Path, names: Mapping[str, str]) -> list[str]:
    for name, value in names.items():
        line = line.replace(f"${name}", value)
    words = shlex.split(line)
    stdin = b""
    if words[0] == "printf":
        stdin = words[1].encode().decode("unicode_escape").encode("latin-1")
        words = words[words.index("|") + 1 :]
    target: Path | None = None
    for arrow in (">>", ">"):
        if arrow in words:
            target = directory / words[words.index(arrow) + 1]
            words = words[: words.index(arrow)]
            break
    if words[0] == "tee":
        (directory / words[1]).write_bytes(stdin)
        return []
    if words[0] == "cat":
        return _lines((directory / words[1]).read_text(), names)
    assert words[0] == "ottla", f"only ottla, printf, tee and cat are understood, not {words[0]}"
    with contextlib.chdir(directory):
        status, out, err = run_ottla(words[1:], stdin)
    if target is not None:
        with target.open("ab" if arrow == ">>" else "wb") as file:
            file.write(out)
        out = b""
    lines = _lines(out.decode("utf-8", errors="replace"), names)
    lines += [f"! {each}".rstrip() for each in _lines(_without_frame(err), names)]
    return lines + ([f"[{status}]"] if status else [])


def _without_frame(text: str) -> str:
    """Typer puts what is wrong with a command line into a box, as wide as the terminal."""
    lines = [re.sub(r"^│\s*|\s*│$", "", line) for line in text.splitlines() if not re.match(r"^[╭╰]", line)]
    boxed = any(line.startswith(("╭", "╰")) for line in text.splitlines())
    return "\n".join(lines) if not boxed else "\n".join(lines[:2]) + " " + " ".join(lines[2:]) + "\n"


def _lines(text: str, names: Mapping[str, str]) -> list[str]:
    for name, value in names.items():
        text = text.replace(value, f"${name}")
    for pattern, normal in _NORMAL:
        text = pattern.sub(normal, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]
