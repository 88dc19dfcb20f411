"""Metrics: one table of what is measured, one registry of what was, and the metrics that clients push.

`rows` names every metric, `instruments` are what the code adds to, `registry` keeps and renders them for Prometheus,
`otlp` reads what clients push (KIP-714), and `telemetry` keeps the last of it, bounded. One event loop owns them all,
so adding to a counter is an attribute's `+=` and nothing else.
"""
