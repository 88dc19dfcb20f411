"""The table of metrics: one row a metric, under the names that Kafka's JMX beans get in Prometheus.

A row is shown once something fills it. Adding a metric is adding a row here and one call on the registry.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    COUNTER = 0
    METER = 1
    """Shown as a counter (`_total`) and as a rate a second (`_rate`)."""
    GAUGE = 2
    DURATION = 3
    """A histogram of microseconds, shown as a summary in milliseconds."""


class MetricRow(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    series_max: int = 2000
    """Further label values share one series, so that names made up by clients cannot fill the memory."""

    @property
    def names_resources(self) -> bool:
        """Do its labels name what some may not know of: topics, groups, directories?"""
        return not _RESOURCE_LABELS.isdisjoint(self.labels)


_RESOURCE_LABELS = frozenset({"topic", "consumergroup", "logdirectory"})


COUNTER, METER, GAUGE, DURATION = Kind.COUNTER, Kind.METER, Kind.GAUGE, Kind.DURATION

# fmt: off
ROWS = (
    # Topics.
    MetricRow("kafka_server_brokertopicmetrics_messagesin", METER, "Records appended by producers.", ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_bytesin", METER, "Bytes of batches from producers.", ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_bytesout", METER, "Bytes of batches sent to consumers.", ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_bytesrejected", METER, "Bytes of batches refused.", ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_totalproducerequests", METER, "Partitions produced to.", ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_totalfetchrequests", METER, "Partitions fetched from.", ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_failedproducerequests", METER, "Partitions whose produce failed.",
              ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_failedfetchrequests", METER, "Partitions whose fetch failed.",
              ("topic",)),
    MetricRow("kafka_server_brokertopicmetrics_replicationbytesin", METER, "Bytes fetched from leaders."),
    MetricRow("kafka_server_brokertopicmetrics_replicationbytesout", METER, "Bytes sent to followers."),

    # Requests and connections.
    MetricRow("kafka_network_requestmetrics_requests", METER, "Requests, by API.", ("request",)),
    MetricRow("kafka_network_requestmetrics_errors", METER, "Refusals in responses, by API and error code.",
              ("request", "error")),
    MetricRow("kafka_network_requestmetrics_totaltimems", DURATION, "From a request's arrival to its answer, by API.",
              ("request",)),
    MetricRow("kafka_network_requestmetrics_localtimems", DURATION, "Time a request was worked on, by API.",
              ("request",)),
    MetricRow("kafka_network_requestmetrics_remotetimems", DURATION, "Time a request waited for others, by API.",
              ("request",)),
    MetricRow("kafka_network_requestmetrics_requestbytes", COUNTER, "Bytes of requests, by API.", ("request",)),
    MetricRow("kafka_network_socketserver_connections", GAUGE, "Open connections, by listener.", ("listener",)),
    MetricRow("kafka_network_socketserver_connectionsaccepted", METER, "Connections accepted, by listener.",
              ("listener",)),
    MetricRow("kafka_network_socketserver_connectionsrefused", METER, "Connections refused because of a limit.",
              ("listener",)),
    MetricRow("kafka_network_socketserver_malformedrequests", METER, "Connections closed because of malformed bytes.",
              ("listener",)),
    MetricRow("kafka_network_socketserver_networkin", METER, "Bytes received, by listener.", ("listener",)),
    MetricRow("kafka_network_socketserver_networkout", METER, "Bytes sent, by listener.", ("listener",)),
    MetricRow("kafka_network_socketserver_memorypoolused", GAUGE, "Bytes of requests held in memory."),

    # Requests that wait, and sessions.
    MetricRow("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, "Requests that wait, by operation.",
              ("delayedoperation",)),
    MetricRow("kafka_server_delayedoperationpurgatory_expires", METER, "Requests whose wait ran out, by operation.",
              ("delayedoperation",)),
    MetricRow("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, "Fetch sessions."),
    MetricRow("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE,
              "Partitions in fetch sessions."),
    MetricRow("kafka_server_fetchsessioncache_incrementalfetchsessionevictions", METER, "Fetch sessions put out."),
    MetricRow("kafka_server_addpartitionstotxnmanager_verificationfailurerate", METER,
              "Partitions that a coordinator did not know to be part of a transaction."),
    MetricRow("kafka_server_addpartitionstotxnmanager_verificationtimems", DURATION,
              "Time to ask a coordinator whether a partition is part of a transaction."),

    # Logs.
    MetricRow("kafka_log_log_size", GAUGE, "Bytes of a partition's log.", ("topic", "partition"), 20_000),
    MetricRow("kafka_log_log_numlogsegments", GAUGE, "Segments of a partition's log.", ("topic", "partition"), 20_000),
    MetricRow("kafka_log_log_logstartoffset", GAUGE, "First offset of a partition's log.", ("topic", "partition"),
              20_000),
    MetricRow("kafka_log_log_logendoffset", GAUGE, "Offset that the next record of a partition gets.",
              ("topic", "partition"), 20_000),
    MetricRow("kafka_log_logflushstats_logflushrateandtimems", DURATION, "Time to make appended records durable."),
    MetricRow("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, "Log directories that failed."),
    MetricRow("kafka_log_logmanager_logdirectoryoffline", GAUGE, "Whether a log directory failed.", ("logdirectory",)),
    MetricRow("kafka_log_logmanager_segmentsdeleted", COUNTER, "Segments deleted by retention."),
    MetricRow("kafka_log_logcleanermanager_uncleanablepartitionscount", GAUGE, "Partitions that cannot be compacted."),
    MetricRow("kafka_log_logcleanermanager_uncleanablebytes", GAUGE, "Bytes that wait in such partitions."),
    MetricRow("kafka_log_logcleanermanager_maxdirtypercent", GAUGE, "Uncompacted share of the dirtiest log."),
    MetricRow("kafka_log_logcleanermanager_timesincelastrunms", GAUGE, "Time since a log to compact was looked for."),
    MetricRow("kafka_log_logcleaner_cleanerrecopypercent", GAUGE, "Share of bytes that the last compaction kept."),
    MetricRow("kafka_log_logcleaner_maxcleantimesecs", GAUGE, "Time that the last compaction took."),
    MetricRow("kafka_log_logcleaner_maxbufferutilizationpercent", GAUGE, "How full the last map of keys was."),
    MetricRow("kafka_log_logcleaner_maxcompactiondelaysecs", GAUGE,
              "How far a log is behind max.compaction.lag.ms."),

    # Replicas.
    MetricRow("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this broker leads."),
    MetricRow("kafka_server_replicamanager_partitioncount", GAUGE, "Partitions on this broker."),
    MetricRow("kafka_server_replicamanager_offlinereplicacount", GAUGE, "Replicas on failed directories."),
    MetricRow("kafka_server_replicamanager_underreplicatedpartitions", GAUGE,
              "Partitions led here that miss replicas in their in-sync set."),
    MetricRow("kafka_server_replicamanager_underminisrpartitioncount", GAUGE,
              "Partitions led here with fewer in-sync replicas than min.insync.replicas."),
    MetricRow("kafka_server_replicamanager_atminisrpartitioncount", GAUGE,
              "Partitions led here with just min.insync.replicas in-sync replicas."),
    MetricRow("kafka_server_replicamanager_reassigningpartitions", GAUGE, "Partitions led here that are reassigned."),
    MetricRow("kafka_server_replicamanager_isrshrinks", METER, "Replicas that left in-sync sets."),
    MetricRow("kafka_server_replicamanager_isrexpands", METER, "Replicas that entered in-sync sets."),
    MetricRow("kafka_server_replicamanager_failedisrupdates", METER, "Changes of in-sync sets that were refused."),
    MetricRow("kafka_server_replicafetchermanager_maxlag", GAUGE, "Records that the slowest follower here is behind."),
    MetricRow("kafka_server_fetcherlagmetrics_consumerlag", GAUGE,
              "Records that this broker's copy of a partition is behind its leader.", ("topic", "partition"), 20_000),
    MetricRow("kafka_cluster_partition_followerlag", GAUGE,
              "Records that a follower of a partition led here is behind.", ("topic", "partition", "replica"), 20_000),
    MetricRow("kafka_cluster_partition_insyncreplicascount", GAUGE,
              "In-sync replicas of a partition led here that has several.", ("topic", "partition"), 20_000),

    # Coordinators.
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE,
              "Committed offsets that this broker coordinates."),
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE,
              "Classic groups that this broker coordinates."),
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", GAUGE,
              "Classic groups whose members join."),
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance", GAUGE,
              "Classic groups that wait for their leader's assignments."),
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", GAUGE, "Classic groups at work."),
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numgroupsdead", GAUGE, "Classic groups that have ended."),
    MetricRow("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", GAUGE, "Classic groups without members."),
    MetricRow("kafka_server_group_coordinator_metrics_group_count", GAUGE, "Groups, by protocol.", ("protocol",)),
    MetricRow("kafka_server_group_coordinator_metrics_consumer_group_count", GAUGE,
              "Groups of the consumer protocol, by state.", ("state",)),
    MetricRow("kafka_server_group_coordinator_metrics_offset_commit", METER, "Offsets committed."),
    MetricRow("kafka_server_group_coordinator_metrics_offset_expiration", METER, "Offsets expired."),
    MetricRow("kafka_server_group_coordinator_metrics_offset_deletion", METER, "Offsets deleted by administrators."),
    MetricRow("kafka_server_group_coordinator_metrics_group_completed_rebalance", METER,
              "Rebalances of classic groups that came to assignments."),
    MetricRow("kafka_server_group_coordinator_metrics_consumer_group_rebalance", METER,
              "Rebalances of groups of the consumer protocol."),
    MetricRow("kafka_server_group_coordinator_metrics_num_partitions", GAUGE,
              "Partitions of __consumer_offsets led here, by state.", ("state",)),
    MetricRow("kafka_server_group_coordinator_metrics_partition_load_time_max", GAUGE,
              "The longest time to load such a partition in the last 30 s, in milliseconds."),
    MetricRow("kafka_server_group_coordinator_metrics_partition_load_time_avg", GAUGE,
              "The average time to load such a partition in the last 30 s, in milliseconds."),
    MetricRow("kafka_server_transaction_coordinator_metrics_transactional_id_count", GAUGE,
              "Transactional ids that this broker coordinates, by state.", ("state",)),
    MetricRow("kafka_server_transaction_coordinator_metrics_num_partitions", GAUGE,
              "Partitions of __transaction_state led here, by state.", ("state",)),
    MetricRow("kafka_server_transaction_coordinator_metrics_partition_load_time_max", GAUGE,
              "The longest time to load such a partition in the last 30 s, in milliseconds."),
    MetricRow("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", GAUGE,
              "The average time to load such a partition in the last 30 s, in milliseconds."),

    # Groups: the names of kafka_exporter, since Kafka has none.
    MetricRow("kafka_consumergroup_current_offset", GAUGE, "Offset that a group has committed.",
              ("consumergroup", "topic", "partition"), 20_000),
    MetricRow("kafka_consumergroup_lag", GAUGE,
              "Records of a partition with a replica here that a group has not committed.",
              ("consumergroup", "topic", "partition"), 20_000),

    # Controller and quorum.
    MetricRow("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, "1 on the active controller."),
    MetricRow("kafka_controller_kafkacontroller_activebrokercount", GAUGE, "Brokers that are not fenced."),
    MetricRow("kafka_controller_kafkacontroller_fencedbrokercount", GAUGE, "Brokers that are fenced."),
    MetricRow("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, "Topics of the cluster."),
    MetricRow("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, "Partitions of the cluster."),
    MetricRow("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, "Partitions without a leader."),
    MetricRow("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE,
              "Partitions whose leader is not the preferred replica."),
    MetricRow("kafka_controller_kafkacontroller_lastappliedrecordoffset", GAUGE, "Last metadata record applied."),
    MetricRow("kafka_controller_kafkacontroller_lastcommittedrecordoffset", GAUGE, "Last metadata record committed."),
    MetricRow("kafka_controller_controllerstats_uncleanleaderelections", METER,
              "Leaders elected from outside the in-sync set: records may have been lost."),
    MetricRow("kafka_controller_controllereventmanager_eventqueueprocessingtimems", DURATION,
              "Time the controller took for a change."),
    MetricRow("kafka_server_raft_metrics_current_state", GAUGE, "1 for the role that this node has in the quorum.",
              ("state",)),
    MetricRow("kafka_server_raft_metrics_current_leader", GAUGE, "Node id of the quorum's leader, -1 if unknown."),
    MetricRow("kafka_server_raft_metrics_current_vote", GAUGE, "Node id that this node voted for, -1 for none."),
    MetricRow("kafka_server_raft_metrics_current_epoch", GAUGE, "Epoch of the quorum."),
    MetricRow("kafka_server_raft_metrics_high_watermark", GAUGE, "High watermark of the metadata log."),
    MetricRow("kafka_server_raft_metrics_log_end_offset", GAUGE, "End of the metadata log."),
    MetricRow("kafka_server_raft_metrics_number_of_voters", GAUGE, "Voters of the quorum."),
    MetricRow("kafka_server_raft_metrics_commit_latency", DURATION, "From a change of the metadata to its commit."),
    MetricRow("kafka_server_broker_metadata_metrics_last_applied_record_offset", GAUGE,
              "Last metadata record in this broker's image."),
    MetricRow("kafka_server_broker_metadata_metrics_last_applied_record_lag_ms", GAUGE,
              "Age of the last metadata record in this broker's image when it was applied."),
    MetricRow("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes", GAUGE, "Bytes of the newest snapshot."),

    # The node itself.
    MetricRow("kafka_server_kafkaserver_brokerstate", GAUGE,
              "0 not running, 1 starting, 2 recovering, 3 running, 6 shutting down, 7 shut down."),
    MetricRow("kafka_server_app_info", GAUGE, "1; the labels say what runs.", ("version", "node_id", "cluster_id")),
    MetricRow("kafka_server_kafkaserver_starttimems", GAUGE, "When the node started, in milliseconds since 1970."),
    MetricRow("process_cpu_seconds", COUNTER, "Time on processors, of all threads."),
    MetricRow("process_resident_memory_bytes", GAUGE, "Memory in use."),
    MetricRow("process_open_fds", GAUGE, "Open file descriptors."),
    MetricRow("process_max_fds", GAUGE, "File descriptors that may be open."),
    MetricRow("kafka_server_eventloop_lagms", DURATION, "How late the event loop runs its timers."),
    MetricRow("kafka_server_clientmetrics_clientinstancecount", GAUGE, "Clients whose pushed metrics are kept."),
    MetricRow("kafka_server_clientmetrics_telemetrypushes", METER, "Pushes of metrics by clients."),
    MetricRow("kafka_server_clientmetrics_telemetryerrors", METER, "Pushes of metrics that were refused."),
)
