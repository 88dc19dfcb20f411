"""What a node does when a disk fails: the whole directory goes offline, and with the last one the node stops.

After a failed write or sync nobody knows what is on the disk, so nothing on it is tried again before the next start, as
in Kafka (KIP-112). The controller hears which directory it was, and gives the partitions there to other replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.hosted import HostedPartition
from ottla.broker.services import Services
from ottla.errors import StartupError

_log = logging.getLogger(__name__)


class LogDirFailures:
    """Told by the replica manager, or by who moves replicas, of the first failure in a directory; does the rest."""

    def __init__(self, services: Services, metadata_dir: str, stop: Callable[[BaseException], None]) -> None:
        self._services = services
        self._metadata_dir = metadata_dir
        self._stop = stop

    def on_offline(self, partition: HostedPartition, error: BaseException) -> None:
        self.fail(self._services.parent_dir(partition.log), error)

    def fail(self, path: str, error: BaseException) -> None:
        services = self._services
        directory = services.logs.directories[path]
        already = directory.failed
        lost = services.logs.fail_directory(path)
        if already:
            return
        _log.error("%s goes offline, with %d partitions: %s", path, len(lost), error)
        for hosted in list(services.replicas.partitions()):
            if hosted.topic_partition in lost:
                services.replicas.fail(hosted, error)
        if path == self._metadata_dir or all(known.offline for known in services.logs.directories.values()):
            self._stop(StartupError(f"The disk under {path} failed, and the node stopped: {error}"))
        elif directory.properties is not None:
            services.control.lifecycle.report_offline(directory.properties.directory_id)
