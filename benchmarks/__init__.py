"""Ottla and Apache Kafka side by side, on one machine, in one run: `python -m benchmarks`.

* `rawload.c` is the load generator, `load` compiles and calls it.
* `servers` starts both sides and reads their CPU time and memory.
* `cases` is the table of what is measured, and the bar for each line.
* `clients` runs real clients: librdkafka by confluent-kafka, and Java's.
* `runner` interleaves the two sides and keeps every sample; `report` draws the table, the page and the plot.
"""
