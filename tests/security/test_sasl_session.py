"""The steps of SASL on a connection, as a dialogue: see the transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.plain import PlainServer
from ottla.security.sasl import AuthenticationFailed, Challenge
from ottla.security.sasl_session import SaslSession
from ottla.security.scram import ScramServer
from tests.transcript import Command, run, transcripts

HERE = Path(__file__).parent / "transcripts"


class Stage:
    def __init__(self) -> None:
        self.session = self.new({})

    def new(self, max_reauth_ms: dict[str, int]) -> SaslSession:
        return SaslSession(
            {
                "PLAIN": lambda: PlainServer({"ann": "a", "bob": "b"}),
                "SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", nonce="s", secret=b"k" * 32, find=lambda _: None),
            },
            max_reauth_ms,
        )

    def execute(self, command: Command) -> list[str]:
        session, now_ms = self.session, command.integer("at", 0)
        try:
            if command.name == "connect":
                self.session = session = self.new({"PLAIN": command.integer("max_reauth_ms", 0)})
                came = [f"offered: {', '.join(session.offered)}"]
            elif command.name == "greeting":
                came = ["served" if session.on_greeting() else "refused"]
            elif command.name == "handshake":
                session.on_handshake(command.words[0], command.integer("version", 1))
                came = []
            elif command.name == "token":
                token = command.words[0] if command.words else "n,,n=ann,r=x"
                outcome = session.on_token(token.replace("|", "\0").encode(), now_ms)
                came = ["challenge" if isinstance(outcome, Challenge) else f"authenticated: {outcome.user}"]
                if session.expires_ms is not None:
                    came.append(f"until {session.expires_ms}")
            elif command.name == "again":
                came = ["begins" if session.may_begin_again(now_ms) else "refused"]
                if session.may_begin_again(now_ms):
                    session.begin_again(now_ms)
            else:
                assert command.name == "expire", command.name
                session.on_expired()
                came = []
        except AuthenticationFailed as error:
            return [f"failed: {error}", f"told: {error.message}"]
        return [*came, f"next: {session.step.value}"]


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    run(path, Stage().execute, pytestconfig)
