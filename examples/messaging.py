"""A queue and a notice board in one: workers share jobs, and an auditor sees all of them.

    python examples/messaging.py

The workers are members of one group: each job goes to one of them, and when one of them stops, the others take over its
partitions. The auditor is in a group of its own, and so gets everything. A worker commits after its job is done: if it
dies before, the job is done again by another.
"""

from __future__ import annotations

import os
import threading
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
TOPIC, PARTITIONS, JOBS = "jobs", 4, 40


class Worker(threading.Thread):
    """Does jobs until it is told to stop."""

    def __init__(self, name: str, group: str) -> None:
        super().__init__(name=name)
        self.done: list[str] = []
        self.ready = threading.Event()
        """Has it a share of the partitions?"""
        self.stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=lambda consumer, partitions: self.ready.set())
        while not self.stopping.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and not message.error():
                self.done.append(message.value().decode())
                self._consumer.commit(message=message, asynchronous=False)
        self._consumer.close()


def send(first: int, count: int) -> None:
    """In turns: it does not matter who does a job, so all get as many."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(first, first + count):
        producer.produce(TOPIC, value=f"job {number}", partition=number % PARTITIONS)
    producer.flush(30)


def wait_until_done(workers: list[Worker], count: int) -> None:
    while sum(len(worker.done) for worker in workers) < count:
        time.sleep(0.05)


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    workers = [Worker(f"worker {number}", "workers") for number in (1, 2)]
    auditor = Worker("auditor", "audit")
    for each in (*workers, auditor):
        each.start()
        each.ready.wait(60)
    send(0, JOBS // 2)
    wait_until_done(workers, JOBS // 2)
    workers[0].stopping.set()
    workers[0].join()
    before = len(workers[1].done)
    send(JOBS // 2, JOBS // 2)
    wait_until_done(workers, JOBS)
    wait_until_done([auditor], JOBS)
    for each in (workers[1], auditor):
        each.stopping.set()
        each.join()
    jobs = [job for worker in workers for job in worker.done]
    print(f"{len(jobs)} jobs done, {len(set(jobs))} of them different")
    print(f"after worker 1 had stopped, worker 2 did {len(workers[1].done) - before}")
    print(f"the auditor saw {len(auditor.done)}")


if __name__ == "__main__":
    main()
