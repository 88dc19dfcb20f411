"""Apache Kafka's own clients under chaos: its verifiable producer and consumer, which tell what they do in JSON lines.

What they say is reported to the histories of partitions when they have ended. When a write of theirs began is not
known, so that of their writes real time is not judged; all else is, as of any other client.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.history import History

PATIENCE_S = 120


class _JavaClient:
    """A process of its own, with a file for what it prints."""

    def __init__(self, main: str, name: str, directory: Path, settings: dict[str, object], *arguments: str) -> None:
        from tests.oracle.apache_kafka import LOG_FLAGS, classpath, java

        properties = directory / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [java(), *LOG_FLAGS, "-Xmx128M", "-cp", classpath(), f"org.apache.kafka.tools.{main}", *arguments]
        command += ["--command-config", str(properties)]
        self._output = directory / name
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)

    def finish(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def _told(self) -> Iterator[dict[str, object]]:
        for line in self._output.read_text().splitlines():
            yield json.loads(line)


class JavaWriting(_JavaClient):
    """Numbers, in order, spread over the partitions of a topic. One that is not idempotent has one request under way at
    a time, or what is sent again would come after what was sent later: that would be the client's own bargain."""

    def __init__(self, bootstrap: str, topic: str, directory: Path, rate: int, *, idempotent: bool) -> None:
        settings: dict[str, object] = {
            # The tool itself would neither retry nor be idempotent; Java's producer is both unless told otherwise.
            "retries": (1 << 31) - 1,
            "enable.idempotence": str(idempotent).lower(),
            "max.in.flight.requests.per.connection": 5 if idempotent else 1,
            "delivery.timeout.ms": 120_000,
            "request.timeout.ms": 3000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
        }
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate), "--acks", "-1"]
        super().__init__("VerifiableProducer", f"producer-of-{topic}", directory, settings, *arguments)

    def tell(self, histories: list[History]) -> list[str]:
        """What was acknowledged; what went wrong is returned."""
        failures: list[str] = []
        for told in self._told():
            match told["name"]:
                case "producer_send_success":
                    histories[_int(told["partition"])].on_acknowledged(_int(told["value"]), _int(told["offset"]), -1)
                case "producer_send_error":
                    failures.append(f"java: {told['value']} was refused: {told['message']}")
        return failures


class JavaReading(_JavaClient):
    """The only member of a group, from the beginning of a topic. Each time that partitions are given to it, it goes on
    from what it has committed, and counts as another reader: whoever subscribes may be shown something again then."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        settings: dict[str, object] = {"request.timeout.ms": 3000, "reconnect.backoff.max.ms": 200}
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", f"java-{topic}"]
        arguments += ["--reset-policy", "earliest", "--verbose"]
        self._name = f"consumer-of-{topic}"
        super().__init__("VerifiableConsumer", self._name, directory, settings, *arguments)
        self.count = 0

    def tell(self, histories: list[History]) -> list[str]:
        """What it was shown; what went wrong is returned."""
        turn = 0
        for told in self._told():
            match told["name"]:
                case "partitions_assigned":
                    turn += 1
                case "record_data":
                    history = histories[_int(told["partition"])]
                    history.on_read(f"{self._name}, turn {turn}", _int(told["offset"]), _int(told["value"]))
                    self.count += 1
        return [] if self.count else [f"java: {self._name} has read nothing"]


def _int(value: object) -> int:
    assert isinstance(value, int | str)
    return int(value)
