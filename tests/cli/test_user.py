"""`ottla user`: users come, log in and go; their passwords are seen by nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.locked_site import two_doors


def user(*arguments: str, stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "user", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_users_come_log_in_and_go(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="her secret";\n'
    )
    with two_doors(tmp_path / "node") as doors:
        open_door = ("--bootstrap-server", doors.open)
        locked_door = ("--bootstrap-server", doors.locked, "--command-config", str(config))
        assert user("list", *locked_door)[0] == 1
        assert user("set", "ann", *open_door, stdin="her secret\n") == (0, "user ann can log in with SCRAM-SHA-512\n")
        assert user("list", *locked_door) == (0, "ann: SCRAM-SHA-512 (8192 iterations)\n")
        assert user("remove", "ann", *open_door)[0] == 0
        assert user("list", *locked_door)[0] == 1
        status, said = user("remove", "ann", *open_door)
        assert status == 1
        assert "no such credential" in said


def test_what_cannot_be_is_said() -> None:
    assert user("set", "ann", "--mechanism", "PLAIN", stdin="x\n") == (
        2,
        "ottla: --mechanism PLAIN is none of SCRAM-SHA-256, SCRAM-SHA-512.\n",
    )
    assert user("set", "ann", "--iterations", "1", stdin="x\n")[1].startswith("ottla: --iterations must be from 4096")
    assert user("set", "ann", stdin="\n")[1] == "ottla: The password is empty.\n"
