"""Ottla and Apache Kafka side by side, on one machine, in one run: `python -m benchmarks`.

* `rawload.c` (records) and `rawgroups.c` (groups) are the load generators, `load` compiles and calls them.
* `servers` starts both sides and reads their CPU time and memory.
* `cases` is the table of what is measured, and the bar for each line.
* `clients` runs real clients: librdkafka by confluent-kafka, and Java's.
* `runner` interleaves the two sides and keeps every sample; `report` draws the table, the page and the plot.
"""
