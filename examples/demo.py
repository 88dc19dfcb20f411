"""`make demo`: orders go through three nodes and Spark while a leader is killed, and none is lost or doubled.

    producers ─► topic orders ─► Spark ─► table (Parquet) ─► Spark ─► topic enriched

Three nodes are started, and two topics with three copies each are made, of which two must be in sync. Idempotent
producers write orders with acks=all. One stream fills the table, another reads the table and writes the enriched
orders, both exactly once. Midway the node that leads the first partition is killed by kill -9. At the end what the
producers were told is compared with what is in the topics and in the table; the status is 1 if they differ. Everything
that was started is ended, and nothing is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NODES, PARTITIONS, PRODUCERS = 3, 3, 2
ORDERS, ENRICHED = "orders", "enriched"
ORDER_COLUMNS = "order BIGINT, customer STRING, amount BIGINT"
WARM_UP_SHARE = 0.02
"""So many of the orders come first, and the others when these have gone all the way: by then Spark is awake."""
BETWEEN_BATCHES = "1 second"
PATIENCE_S = 300.0
QUICK_TO_NOTICE = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class DemoFailed(Exception):
    """The demo cannot go on; the message is one sentence."""


def client(bootstrap: str) -> dict[str, Any]:
    """Settings that all have in common. What they say of a node that is gone, the demo says itself."""
    return {"bootstrap.servers": bootstrap, "log_level": 2, "enable.metrics.push": False}


# The cluster.


class Cluster:
    """Three nodes, as `ottla up --nodes 3` starts them."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "nodes"
        self._log = directory / "nodes.log"
        settings = [part for key, value in QUICK_TO_NOTICE.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "ottla.cli", "up", "--nodes", str(NODES), "--port", "0", "--registry", "off"]
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C is for the demo, which then stops the nodes.
            self._process = subprocess.Popen(
                [*command, "--data", str(self._data), *settings],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().split()
        if ready[:1] != ["ready:"]:
            self.close()
            raise DemoFailed(f"The nodes did not start: {self._log.read_text().strip()}")
        self.bootstrap = ready[1]

    def create(self, *topics: str) -> None:
        config = {"min.insync.replicas": "2"}
        wanted = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=NODES, config=config) for name in topics]
        admin = AdminClient(client(self.bootstrap))
        for made in admin.create_topics(wanted).values():
            made.result(60)

    def kill_leader(self, topic: str, partition: int) -> tuple[int, int]:
        """The node that was killed, and its process."""
        found = AdminClient(client(self.bootstrap)).list_topics(topic, timeout=60)
        node_id: int = found.topics[topic].partitions[partition].leader
        pid = int((self._data / f"node-{node_id}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        return node_id, pid

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# Those who order.


@dataclass(slots=True)
class Tally:
    """Orders that somebody has seen."""

    count: int = 0
    amount: int = 0
    numbers: set[int] = field(default_factory=set)

    def add(self, number: int, amount: int) -> None:
        self.count += 1
        self.amount += amount
        self.numbers.add(number)


def order(number: int) -> dict[str, Any]:
    return {"order": number, "customer": f"customer-{number % 97}", "amount": 100 + number * 7919 % 99_900}


class Customers:
    """Idempotent producers with acks=all, a thread each; they count what was acknowledged."""

    def __init__(self, bootstrap: str, orders: int, seconds: float) -> None:
        self.total = orders
        self._bootstrap = bootstrap
        self._rate = orders / seconds / PRODUCERS
        self.first = PRODUCERS * max(1, int(orders * WARM_UP_SHARE) // PRODUCERS)
        self._go = threading.Event()
        self._told = [Tally() for _ in range(PRODUCERS)]
        self._failures: list[str] = []
        self._ended = False
        self._threads = [threading.Thread(target=self._run, args=(place,)) for place in range(PRODUCERS)]
        for thread in self._threads:
            thread.start()

    @property
    def acknowledged(self) -> int:
        return sum(each.count for each in self._told)

    def go_on(self) -> None:
        """After the first orders, the others."""
        self._go.set()

    def check(self) -> None:
        if self._failures:
            raise DemoFailed(f"A producer gave up: {self._failures[0]}")

    def tally(self) -> Tally:
        numbers = set[int]().union(*(each.numbers for each in self._told))
        return Tally(self.acknowledged, sum(each.amount for each in self._told), numbers)

    def close(self) -> None:
        self._ended = True
        self._go.set()
        for thread in self._threads:
            thread.join()

    def _run(self, place: int) -> None:
        durable = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 20}
        producer = Producer({**client(self._bootstrap), **durable})
        for number in range(place, self.first, PRODUCERS):
            self._send(producer, place, number)
        self._flush(producer)
        self._go.wait()
        began = time.monotonic()
        later = range(self.first + place, self.total, PRODUCERS)
        for sent, number in enumerate(later):
            while not self._ended and sent > (time.monotonic() - began) * self._rate:
                producer.poll(0.01)
            if self._ended:
                break
            self._send(producer, place, number)
        self._flush(producer)

    def _flush(self, producer: Producer) -> None:
        """Until everything is acknowledged or given up, or nobody waits for it any more."""
        while producer.flush(0.2):
            if self._ended:
                producer.purge()

    def _send(self, producer: Producer, place: int, number: int) -> None:
        made = order(number)

        def on_delivery(error: object, message: object) -> None:
            if error is None:
                self._told[place].add(number, made["amount"])
            elif not self._ended:
                self._failures.append(str(error))

        producer.produce(ORDERS, json.dumps(made), key=made["customer"], on_delivery=on_delivery)
        producer.poll(0)


# The pipeline.


class Stream:
    """A query, and how many rows it has read."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._next_batch = 0
        self.rows = 0

    def look(self) -> None:
        """Raises `DemoFailed` if it has ended."""
        for each in self._query.recentProgress:
            if each.batchId >= self._next_batch:
                self._next_batch = each.batchId + 1
                self.rows += each.numInputRows
        if not self._query.isActive:
            raise DemoFailed(f"The stream {self._query.name} has ended: {self._query.exception()}")

    def close(self) -> None:
        self._query.stop()


def into_table(spark: SparkSession, bootstrap: str, home: Path) -> Stream:
    from pyspark.sql import functions as F

    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = F.from_json(F.col("value").cast("string"), ORDER_COLUMNS)
    return Stream(
        records.select(parsed.alias("parsed"), "timestamp")
        .select("parsed.*", "timestamp")
        .writeStream.queryName("into-the-table")
        .format("parquet")
        .option("path", str(home / "table"))
        .option("checkpointLocation", str(home / "checkpoints" / "table"))
        .trigger(processingTime=BETWEEN_BATCHES)
        .start()
    )


def back_into_a_topic(spark: SparkSession, bootstrap: str, home: Path) -> Stream:
    from pyspark.sql import functions as F

    (home / "table").mkdir(exist_ok=True)
    orders = spark.readStream.schema(f"{ORDER_COLUMNS}, timestamp TIMESTAMP").parquet(str(home / "table"))
    enriched = orders.withColumn("large", F.col("amount") >= 50_000)
    return Stream(
        enriched.select(F.col("customer").alias("key"), F.to_json(F.struct(*enriched.columns)).alias("value"))
        .writeStream.queryName("back-into-a-topic")
        .format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", ENRICHED)
        .option("checkpointLocation", str(home / "checkpoints" / "enriched"))
        .trigger(processingTime=BETWEEN_BATCHES)
        .start()
    )


# The reckoning.


def reader_of(bootstrap: str, topic: str) -> Consumer:
    """Of what is committed, from the beginning."""
    settings = {"group.id": "readers", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**client(bootstrap), **settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


class Arrivals:
    """Counts what is committed to a topic, as it comes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.rows = 0
        self._reader = reader_of(bootstrap, topic)
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while not self._ended:
            self.rows += sum(message.error() is None for message in self._reader.consume(1000, 0.2))


def in_topic(bootstrap: str, topic: str) -> Tally:
    consumer = reader_of(bootstrap, topic)
    found, ended = Tally(), set[int]()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        if time.monotonic() > deadline:
            raise DemoFailed(f"The topic {topic} cannot be read to its end.")
        for message in consumer.consume(1000, 1.0):
            if message.error():
                ended.add(message.partition())
            else:
                ended.discard(message.partition())
                read = json.loads(message.value())
                found.add(read["order"], read["amount"])
    consumer.close()
    return found


def in_table(spark: SparkSession, home: Path) -> Tally:
    found = Tally()
    for row in spark.read.parquet(str(home / "table")).select("order", "amount").toLocalIterator():
        found.add(row.order, row.amount)
    return found


def show(console: Console, places: Sequence[tuple[str, Tally]]) -> bool:
    """The comparison, and whether all agree."""
    expected = places[0][1]
    table = Table("", "orders", "of them twice", "amounts in all", "", title="What went in, and what came out")
    for column in table.columns[1:]:
        column.justify = "right"
    all_agree = True
    for place, found in places:
        agrees = found == expected and found.count == len(found.numbers)
        all_agree &= agrees
        twice = found.count - len(found.numbers)
        sign = "[green]✓[/]" if agrees else "[red]✗[/]"
        table.add_row(place, f"{found.count:,}", f"{twice:,}", f"{found.amount / 100:,.2f}", sign)
    console.print(table)
    return all_agree


# The course of events.


class Display:
    """Three bars on a terminal; elsewhere a line now and then."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._bars: list[TaskID] = [
            self.progress.add_task(name, total=total) for name in ("acknowledged", "in the table", "in enriched")
        ]
        self._said_s = 0.0

    def show(self, *numbers: int) -> None:
        for bar, number in zip(self._bars, numbers, strict=True):
            self.progress.update(bar, completed=number)
        if not self._console.is_terminal and time.monotonic() > self._said_s + 5:
            self._said_s = time.monotonic()
            self._console.print("acknowledged {:,}, in the table {:,}, in enriched {:,}".format(*numbers))


def run(console: Console, home: Path, orders: int, seconds: float) -> bool:
    """Do all orders come out as they went in?"""
    from ottla.spark import session

    with closing(Cluster(home)) as cluster:
        console.print(f"Three nodes serve on {cluster.bootstrap}.")
        cluster.create(ORDERS, ENRICHED)
        console.print(f"Topics {ORDERS} and {ENRICHED}: {PARTITIONS} partitions, {NODES} copies, 2 must be in sync.")
        console.print("Spark starts, and the first orders go through it …")
        with console.status("starting Spark"), errors_to(home / "spark.log"):
            spark = session("demo", config={"spark.sql.warehouse.dir": str(home / "warehouse")})
        try:
            with (
                closing(Customers(cluster.bootstrap, orders, seconds)) as customers,
                closing(into_table(spark, cluster.bootstrap, home)) as filling,
                closing(back_into_a_topic(spark, cluster.bootstrap, home)) as back,
                closing(Arrivals(cluster.bootstrap, ENRICHED)) as arrivals,
            ):
                follow(console, cluster, customers, (filling, back), arrivals)
            places = [
                ("acknowledged to the producers", customers.tally()),
                (f"topic {ORDERS}", in_topic(cluster.bootstrap, ORDERS)),
                ("table", in_table(spark, home)),
                (f"topic {ENRICHED}", in_topic(cluster.bootstrap, ENRICHED)),
            ]
        finally:
            spark.stop()
    return show(console, places)


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Java, which is started meanwhile, talks into the log and not over the bars; what matters, queries tell."""
    before = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def follow(
    console: Console, cluster: Cluster, customers: Customers, streams: tuple[Stream, Stream], arrivals: Arrivals
) -> None:
    """Until every order has come through, with a leader killed midway."""
    display = Display(console, customers.total)

    def wait_until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            for stream in streams:
                stream.look()
            customers.check()
            display.show(customers.acknowledged, streams[0].rows, arrivals.rows)
            if time.monotonic() > deadline:
                raise DemoFailed("The orders do not come through in time.")
            time.sleep(0.1)

    with display.progress:
        wait_until(lambda: arrivals.rows >= customers.first)
        customers.go_on()
        wait_until(lambda: customers.acknowledged >= customers.total // 2)
        node_id, pid = cluster.kill_leader(ORDERS, 0)
        console.print(f"[bold red]kill -9 {pid}[/]: node {node_id}, which led {ORDERS}-0, is gone.")
        wait_until(lambda: customers.acknowledged >= customers.total)
        console.print("All orders are acknowledged; the streams catch up.")
        wait_until(lambda: arrivals.rows >= customers.total)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="demo", description="Orders through three nodes and Spark, with a crash.")
    parser.add_argument("--orders", type=int, default=40_000, metavar="N", help="how many there are")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="how long they take to come in")
    options = parser.parse_args(given)
    console = Console(highlight=False)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # So that what was started is ended.
    with tempfile.TemporaryDirectory(prefix="ottla-demo-", ignore_cleanup_errors=True) as directory:
        try:
            agree = run(console, Path(directory), options.orders, options.seconds)
        except (DemoFailed, KafkaException) as error:
            console.print(f"[red]demo: {error}[/]")
            return 1
    said = "[green]Nothing was lost, nothing came twice.[/]" if agree else "[red]The totals differ.[/]"
    console.print(f"{said} {time.monotonic() - began:.0f} s.")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
