"""DataFrames into topics, exactly once: see docs/spark-sink.md.

`writers` are called by Spark. In a task they stage rows in a transaction that is left open (`staging`, which has `rows`
made of columns and `producing` sent). In the driver they open, commit or undo a batch (`driver`), as `two_phase`
decides, which is pure; what was decided is in a topic (`decision_log`), and transactions are asked for and ended by
`coordination`.
"""
