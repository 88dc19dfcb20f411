"""Apache Kafka 4.3.1 as an oracle: its jars, its nodes and its command line tools, driven from Python.

Owns everything that touches Java. The oracle tests point Kafka's tools at our node with it, and the benchmarks start
the other side of every comparison with it. Nothing here skips: where Java or Maven lack, `OracleUnavailable` says what
to install, and the caller fails.

* `classpath()` resolves the jars once by Maven into `.cache/oracle`; OTTLA_KAFKA_CLASSPATH overrides it (with a logging
  back end, as a release of Kafka has one: some tools name the error that they met in their log alone).
* `KafkaTools` runs many tool commands in one JVM (`ToolServer.java`), because starting a JVM is the cost.
* `ApacheKafka` formats, starts and ends one node in its own process group, known by its pid.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

KAFKA_VERSION = "4.3.1"
REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache" / "oracle"

# As bin/kafka-server-start.sh and bin/kafka-run-class.sh start a broker when the user sets nothing.
BROKER_HEAP = ("-Xmx1G", "-Xms1G")
BROKER_JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
LOG_FLAGS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")

TOOLS: Mapping[str, str] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>oracle</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <!-- Kafka's release ships a logging back end, its artifacts do not: a node that fails would fail in silence. -->
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


_CONNECTOR_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>connector</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{spark}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <!-- The token provider of this release of Spark was not published; that of an earlier one serves. -->
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
      <version>4.0.0</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>3.9.1</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.commons</groupId><artifactId>commons-pool2</artifactId><version>2.12.1</version>
    </dependency>
  </dependencies>
</project>
"""


FLINK_VERSION = "2.1.0"
_REGISTRY_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>registry</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.flink</groupId><artifactId>flink-sql-avro-confluent-registry</artifactId>
      <version>{FLINK_VERSION}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
  </dependencies>
</project>
"""


APICURIO_VERSION = "3.0.9"
"""The last that runs on Java 17."""


class OracleUnavailable(RuntimeError):
    """Java, Maven or the jars cannot be had here; the message says what is missing."""


class OracleTimeout(RuntimeError):
    """A tool or a node did not answer in time; what it printed so far is in the message."""


class ToolFailed(AssertionError):
    """A tool ended with another status than expected."""


def java() -> str:
    """The `java` command: JAVA_HOME's if that is set, else the one on the path."""
    return _command("java", "a Java development kit, version 17 or later")


def _command(name: str, what: str) -> str:
    home = os.environ.get("JAVA_HOME")
    if home and name.startswith("java"):
        candidate = Path(home) / "bin" / name
        if candidate.exists():
            return str(candidate)
    found = shutil.which(name)
    if found is None:
        raise OracleUnavailable(f"`{name}` was not found: the oracle needs {what}, and does not pretend without it")
    return found


@contextlib.contextmanager
def _cache_lock() -> Iterator[None]:
    """One process at a time fills the cache; others (parallel test workers) wait and find it filled."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def classpath() -> str:
    """The class path of Apache Kafka's server and tools, resolved by Maven the first time."""
    override = os.environ.get("OTTLA_KAFKA_CLASSPATH")
    if override:
        return override
    java()
    jars = CACHE / f"kafka-{KAFKA_VERSION}"
    with _cache_lock():
        if not jars.is_dir():
            _resolve(jars)
    return os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))


def spark_connector() -> list[Path]:
    """The jars of Spark's own Kafka connector, for the PySpark that is installed; resolved by Maven the first time."""
    from pyspark import __version__ as spark

    jars = CACHE / f"spark-kafka-{spark}"
    with _cache_lock():
        if not jars.is_dir():
            _resolve(jars, _CONNECTOR_POM.replace("{spark}", spark))
    return sorted(jars.glob("*.jar"))


def registry_client() -> list[Path]:
    """Confluent's Java client of schema registries, in the jar with which Apache Flink ships it."""
    jars = CACHE / f"flink-registry-{FLINK_VERSION}"
    with _cache_lock():
        if not jars.is_dir():
            _resolve(jars, _REGISTRY_POM)
    return sorted(jars.glob("*.jar"))


def apicurio() -> Path:
    """Apicurio's schema registry, which speaks Confluent's REST API: where its distribution was unpacked."""
    place = CACHE / f"apicurio-{APICURIO_VERSION}"
    with _cache_lock():
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                # By itself: what it was built of is in the archive, and not all of that is in the repository.
                artifact = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"
                _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}/archive")
                (archive,) = Path(scratch, "archive").iterdir()
                with tarfile.open(archive) as packed:
                    packed.extractall(f"{scratch}/unpacked", filter="data")
                Path(scratch, "unpacked").rename(place)
    return place


def _resolve(jars: Path, wanted: str = _POM) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(wanted)
        target = Path(scratch) / "jars"
        _maven("dependency:copy-dependencies", "-f", str(pom), f"-DoutputDirectory={target}", "-DincludeScope=runtime")
        target.rename(jars)


def _maven(*arguments: str) -> None:
    maven = _command("mvn", "Maven, to fetch Apache Kafka's jars (or OTTLA_KAFKA_CLASSPATH set to them)")
    done = subprocess.run([maven, "-q", "-B", *arguments], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise OracleUnavailable(f"Maven could not resolve the jars:\n{done.stdout}{done.stderr}")


def compiled(source: Path, more: Iterable[Path] = ()) -> str:
    """Compile one of our Java files against Kafka's jars, and `more`, if it changed; return a class path that holds it
    and them."""
    javac = _command("javac", "a Java development kit (a runtime alone has no compiler)")
    jars = os.pathsep.join([*map(str, more), classpath()])
    classes = CACHE / "classes" / source.stem
    marker = classes / f"{source.stem}.class"
    with _cache_lock():
        if not marker.exists() or marker.stat().st_mtime < source.stat().st_mtime:
            classes.mkdir(parents=True, exist_ok=True)
            command = [javac, "-cp", jars, "-d", str(classes), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode != 0:
                raise OracleUnavailable(f"javac refused {source.name}:\n{done.stdout}{done.stderr}")
    return f"{classes}{os.pathsep}{jars}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What one tool command left behind."""

    command: str
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Standard output, without empty lines."""
        return [line for line in self.out.splitlines() if line.strip()]

    @property
    def printed(self) -> str:
        """Output and error: where a tool's log goes depends on the logging back end of its class path."""
        return self.out + self.err

    def check(self, status: int = 0) -> Self:
        """Fail with all that the tool printed, unless it ended with `status`."""
        if self.status != status:
            raise ToolFailed(f"{self.command}\nstatus {self.status}, not {status}\n{self.out}\n{self.err}")
        return self


def run_java(
    main_class: str, *arguments: str, jvm: Sequence[str] = (), cp: str | None = None, timeout: float
) -> ToolResult:
    """Run one main class in a JVM of its own, as a user's shell would."""
    command = [java(), *LOG_FLAGS, *jvm, "-cp", cp or classpath(), main_class, *arguments]
    shown = " ".join([main_class, *arguments])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        raise OracleTimeout(f"{shown}: no end after {timeout} s\n{late.stdout!r}\n{late.stderr!r}") from None
    return ToolResult(command=shown, status=done.returncode, out=done.stdout, err=done.stderr)


class KafkaTools:
    """Apache Kafka's command line tools in one warm JVM; commands run one at a time.

    A command that outlives its timeout takes the JVM with it, and the next command starts a new one.
    """

    def __init__(self) -> None:
        self._jvm: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def run(self, tool: str, *arguments: str, stdin: str = "", timeout: float = 60) -> ToolResult:
        """Run `tool` (a name of `TOOLS`, or a main class); its status may be anything."""
        shown = " ".join([tool, *arguments])
        request = [TOOLS.get(tool, tool), stdin, *arguments]
        frame = struct.pack(">i", len(request)) + b"".join(_lengthy(text) for text in request)
        with self._lock:
            jvm = self._start()
            assert jvm.stdin is not None
            assert jvm.stdout is not None
            jvm.stdin.write(frame)
            jvm.stdin.flush()
            deadline = time.monotonic() + timeout
            try:
                (status,) = struct.unpack(">i", self._read(jvm.stdout, 4, deadline))
                out, err = (self._read_text(jvm.stdout, deadline) for _ in range(2))
            except (OracleTimeout, EOFError) as failure:
                self._kill()
                raise OracleTimeout(f"{shown}: {failure or 'the tools JVM ended'} (limit {timeout} s)") from None
        return ToolResult(command=shown, status=status, out=out, err=err)

    def check(self, tool: str, *arguments: str, stdin: str = "", timeout: float = 60) -> ToolResult:
        """Run `tool`, which must succeed."""
        return self.run(tool, *arguments, stdin=stdin, timeout=timeout).check()

    def close(self) -> None:
        """End the JVM; a later command starts another."""
        jvm, self._jvm = self._jvm, None
        if jvm is None:
            return
        for pipe in (jvm.stdin, jvm.stdout):
            assert pipe is not None
            pipe.close()
        try:
            jvm.wait(timeout=10)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._jvm is not None and self._jvm.poll() is None:
            return self._jvm
        cp = compiled(Path(__file__).with_name("ToolServer.java"))
        # The tools are short-lived and small: a serial collector and the quick compiler start fastest.
        flags = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        self._jvm = subprocess.Popen(
            [java(), *LOG_FLAGS, *flags, "-cp", cp, "ToolServer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        return self._jvm

    def _kill(self) -> None:
        if self._jvm is not None:
            self._jvm.kill()
            self.close()

    def _read_text(self, pipe: IO[bytes], deadline: float) -> str:
        (size,) = struct.unpack(">i", self._read(pipe, 4, deadline))
        return self._read(pipe, size, deadline).decode(errors="replace")

    @staticmethod
    def _read(pipe: IO[bytes], size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OracleTimeout("no answer in time")
            part = os.read(pipe.fileno(), min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def _lengthy(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def free_ports(count: int) -> list[int]:
    """Ports on the loopback interface that nobody listens on right now.

    They lie below the range that the kernel hands to clients: polling a port inside it may connect to itself, and then
    nobody can listen there.
    """
    found: list[int] = []
    for port in random.sample(range(12_000, 31_000), 2_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OracleUnavailable(f"no {count} free ports between 12000 and 31000")


def advertised_apis(host: str, port: int, timeout: float = 5) -> dict[int, tuple[int, int]]:
    """The lowest and highest version of each API key in the server's answer to ApiVersions, version 0."""
    correlation_id = 7
    body = struct.pack(">hhih", 18, 0, correlation_id, -1)
    with socket.create_connection((host, port), timeout=timeout) as probe:
        probe.sendall(struct.pack(">i", len(body)) + body)
        with probe.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    answered_id, error_code, count = struct.unpack_from(">ihi", answer)
    if answered_id != correlation_id or error_code != 0:
        raise OSError(f"ApiVersions was answered with error {error_code}")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}


def answers_api_versions(host: str, port: int) -> bool:
    """Whether a server there answers an ApiVersions request without an error."""
    try:
        return bool(advertised_apis(host, port))
    except (OSError, struct.error):
        return False


def wait_for_api_versions(host: str, port: int, *, alive: Callable[[], bool], timeout: float) -> None:
    """Return as soon as a server answers there; raise when it is no longer `alive` or time is up."""
    deadline = time.monotonic() + timeout
    while not answers_api_versions(host, port):
        if not alive():
            raise OracleUnavailable(f"the node at {host}:{port} ended before it answered")
        if time.monotonic() > deadline:
            raise OracleTimeout(f"the node at {host}:{port} did not answer ApiVersions within {timeout} s")
        time.sleep(0.02)


def random_cluster_id() -> str:
    """A cluster id as `kafka-storage random-uuid` makes one: 16 bytes in URL-safe base64 without padding."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # It would read as an option on a command line.
            return text


class ApacheKafka:
    """One Apache Kafka node, broker and controller in one, with all it owns under `directory`.

    `directory` gets `server.properties`, `kafka.log` and the log directory `data`; the caller deletes it.
    """

    host = "127.0.0.1"

    def __init__(
        self, directory: Path, *, overrides: Mapping[str, str] | None = None, heap: Sequence[str] = BROKER_HEAP
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log_file = directory / "kafka.log"
        self.port, self.controller_port = free_ports(2)
        if overrides is not None and "listeners" in overrides:
            self.port = int(overrides["listeners"].split(",")[0].rpartition(":")[2])
        self.cluster_id = random_cluster_id()
        self._properties_file = directory / "server.properties"
        self._heap = tuple(heap)
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{self.host}:{self.controller_port}",
            "log.dirs": str(self.data),
            # One node cannot hold three replicas, which is what these ask for by default.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **(overrides or {}),
        }
        self._properties_file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log_dir(self) -> Path:
        """The directory that holds the partitions."""
        return self.data

    def format(self, tools: KafkaTools) -> None:
        """Give the log directory its identity and the bootstrap metadata of a quorum of one."""
        tools.check("kafka-storage", "format", "--standalone", "-t", self.cluster_id, "-c", str(self._properties_file))

    def spawn(self) -> None:
        """Start the process and return at once."""
        assert self._process is None, "already started"
        command = [java(), *self._heap, *BROKER_JVM_FLAGS, *LOG_FLAGS, "-cp", classpath(), "kafka.Kafka"]
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._properties_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.directory,
            )

    def wait_ready(self, timeout: float = 90) -> None:
        """Wait until the node answers ApiVersions; on failure show the end of its log."""
        process = self._process
        assert process is not None, "not started"
        try:
            wait_for_api_versions(self.host, self.port, alive=lambda: process.poll() is None, timeout=timeout)
        except (OracleTimeout, OracleUnavailable) as failure:
            self.kill()
            tail = self.log_file.read_text(errors="replace")[-4000:]
            raise type(failure)(f"{failure}\n{tail}") from None

    def start(self, tools: KafkaTools) -> Self:
        """Format, spawn and wait."""
        self.format(tools)
        self.spawn()
        self.wait_ready()
        return self

    def stop(self, timeout: float = 30) -> int:
        """Shut down cleanly (SIGTERM) and return the status; a node that will not end is killed."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            raise OracleTimeout(f"the node {process.pid} did not end within {timeout} s of SIGTERM") from None

    def kill(self) -> None:
        """End the node at once, as kill -9 does."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its own group, and whatever it started; nothing else can be in that group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
