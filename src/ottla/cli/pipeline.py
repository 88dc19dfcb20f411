"""`ottla pipeline`: runs pipelines on Spark, shows what they do, and stops them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.cli.settings import read_properties
from ottla.errors import StartupError

if TYPE_CHECKING:
    from ottla.spark.pipelines.definition import Pipeline
    from ottla.spark.pipelines.home import Status

CHECK_PATIENCE_MS = 5_000
PATIENCE_S = 60.0
"""How long `stop` waits for the batch at hand."""


def run_file(path: Path, *, root: Path, once: bool, interval_s: float, as_json: bool = False) -> None:
    """Exits with status 1 and a sentence when the pipeline fails."""
    need_spark()
    from ottla.spark.pipelines.definition import PipelineError, load

    try:
        pipeline = load(path)
    except PipelineError as error:
        raise StartupError(str(error)) from error
    run(pipeline, root=root, once=once, interval_s=interval_s, as_json=as_json)


def run_table(
    *,
    topic: str,
    location: Path,
    format: str,
    by: str,
    back: bool,
    properties: Mapping[str, str],
    name: str | None,
    root: Path,
    once: bool,
    interval_s: float,
    as_json: bool = False,
) -> None:
    need_spark()
    from ottla.spark.pipelines.definition import PipelineError
    from ottla.spark.pipelines.table_pipeline import table_to_topic, topic_to_table

    _check_cluster(properties, topic=None if back else topic)
    bootstrap = properties["bootstrap.servers"]
    try:
        if back:
            made = table_to_topic(
                bootstrap=bootstrap, topic=topic, location=location, format=format, name=name, properties=properties
            )
        else:
            made = topic_to_table(
                bootstrap=bootstrap,
                topic=topic,
                location=location,
                format=format,
                by=by,
                name=name,
                properties=properties,
            )
    except PipelineError as error:
        raise StartupError(str(error)) from error
    run(made, root=root, once=once, interval_s=interval_s, as_json=as_json)


def run_mirror(
    *,
    source: str,
    target: str,
    topics: str,
    groups: str,
    from_config: Path | None,
    to_config: Path | None,
    skip_lost: bool,
    name: str | None,
    root: Path,
    once: bool,
    interval_s: float,
    as_json: bool = False,
) -> None:
    need_spark()
    from ottla.spark.pipelines.definition import PipelineError
    from ottla.spark.pipelines.mirror import MirrorEnd, mirror

    ends = [
        MirrorEnd(bootstrap, {} if config is None else read_properties(config))
        for bootstrap, config in ((source, from_config), (target, to_config))
    ]
    try:
        made = mirror(*ends, topics=topics, groups=groups, skip_lost=skip_lost, name=name)
    except PipelineError as error:
        raise StartupError(str(error)) from error
    run(made, root=root, once=once, interval_s=interval_s, as_json=as_json)


def run_redrive(
    *,
    topic: str,
    to: str | None,
    where: str | None,
    properties: Mapping[str, str],
    name: str | None,
    root: Path,
    as_json: bool = False,
) -> None:
    need_spark()
    from ottla.spark.pipelines.redrive import redrive

    _check_cluster(properties, topic=topic)
    made = redrive(
        bootstrap=properties["bootstrap.servers"],
        dead_letter_topic=topic,
        to=to,
        where=where,
        name=name,
        properties=properties,
    )
    run(made, root=root, once=True, interval_s=0.0, as_json=as_json)


def _check_cluster(properties: Mapping[str, str], *, topic: str | None) -> None:
    """Raises `StartupError` where no cluster answers, or has no such topic: Spark would take a minute to say so. A node
    that is just starting is waited for."""
    from ottla.client.blocking import BlockingClient
    from ottla.client.settings import ClientSettings, InvalidClientConfig
    from ottla.errors import KafkaError

    bootstrap = properties["bootstrap.servers"]
    try:
        with BlockingClient(ClientSettings.parse(properties)) as client:
            names = client.persist(client.topics, timeout_ms=CHECK_PATIENCE_MS)
    except InvalidClientConfig as error:
        raise StartupError(str(error)) from None
    except KafkaError as error:
        reason = error.message or error.code.name
        raise StartupError(
            f"The cluster at {bootstrap} does not answer: {reason}. Start one with `ottla up`, or name another with "
            "--bootstrap or --profile."
        ) from None
    if topic is not None and topic not in names:
        raise StartupError(
            f"The cluster at {bootstrap} has no topic {topic}: see `ottla topic list`, or make it with "
            f"`ottla topic create {topic}`."
        )


def run(pipeline: Pipeline, *, root: Path, once: bool, interval_s: float, as_json: bool = False) -> None:
    from ottla.spark.pipelines.definition import PipelineError
    from ottla.spark.pipelines.home import Home
    from ottla.spark.pipelines.runner import run_pipeline

    home = Home(root / pipeline.name)
    with Display(pipeline.name) as display:
        try:
            status = run_pipeline(pipeline, home, once=once, interval_s=interval_s, tell=display.show)
        except PipelineError as error:
            raise StartupError(str(error)) from error
    if as_json:
        print(json.dumps(_item(pipeline.name, status), ensure_ascii=False))
    else:
        Console().print(f"{pipeline.name}: {status.state.value}, {status.rows:,} rows read.", highlight=False)


def show_status(name: str | None, *, root: Path, as_json: bool = False) -> None:
    need_spark()
    from ottla.spark.pipelines.definition import PipelineError
    from ottla.spark.pipelines.home import Home, homes

    try:
        wanted = homes(root) if name is None else [Home(root / name)]
        rows = [(home, home.read_status()) for home in wanted]
    except PipelineError as error:
        raise StartupError(str(error)) from error
    if not rows:
        raise StartupError(f"No pipeline has run under {root}: start one with `ottla pipeline run FILE`.")
    if as_json:
        for home, status in rows:
            print(json.dumps(_item(home.name, status), ensure_ascii=False))
        return
    table = Table("pipeline", "state", "batch", "rows", "rows/s", "lag", "last word")
    for home, status in rows:
        ago = f"{max(0.0, time.time() - status.at):.0f} s ago"
        table.add_row(
            home.name,
            status.state.value,
            str(status.batch) if status.batch >= 0 else "–",
            f"{status.rows:,}",
            f"{status.rows_per_second:,.0f}",
            f"{status.lag_in_all:,}",
            status.error or ago,
        )
    Console().print(table)


def _item(name: str, status: Status) -> dict[str, object]:
    return {
        "pipeline": name,
        "state": status.state.value,
        "batch": status.batch if status.batch >= 0 else None,
        "rows": status.rows,
        "rows_per_second": status.rows_per_second,
        "lag": status.lag_in_all,
        "at": int(1000 * status.at),
        "error": status.error,
    }


def stop(name: str, *, root: Path, as_json: bool = False) -> None:
    """Asks the runner to stop, and waits until it has."""
    need_spark()
    from ottla.spark.pipelines.home import Home

    home = Home(root / name)
    runner = home.runner()
    if runner is None:
        raise StartupError(f"{name} does not run: `ottla pipeline status` shows what does.")
    os.kill(runner, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while home.runner() == runner:
        if time.monotonic() > deadline:
            raise StartupError(f"{name} (process {runner}) has not stopped within {PATIENCE_S:.0f} s: try again.")
        time.sleep(0.1)
    if as_json:
        print(json.dumps({"pipeline": name, "stopped": True}, ensure_ascii=False))
    else:
        Console().print(f"{name} has stopped.", highlight=False)


class Display:
    """One line that says how far the pipeline is: in place on a terminal, one after another elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(Text(f"{name}: starting Spark …"), console=self._console, transient=True)

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: Status) -> None:
        said = (
            f"{self._name}: {status.state.value}"
            if status.batch < 0
            else f"{self._name}: batch {status.batch}, {status.rows:,} rows, {status.rows_per_second:,.0f} rows/s, "
            f"lag {status.lag_in_all:,}"
        )
        if self._console.is_terminal:
            self._live.update(Text(said))
        else:
            self._console.print(said)


def need_spark() -> None:
    """Raises `StartupError` where there is none. Modules beside which the command is run can be imported."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise StartupError('Pipelines run on Spark: pip install "ottla[spark]".')
    sys.path.insert(0, os.getcwd())
