"""Avro in Spark, in the format of Confluent's serializers: framed bytes to typed columns and back.

    from ottla.spark.avro import decode, from_confluent_avro, to_confluent_avro

    typed = decode(orders, registry="http://localhost:8081", subject="orders-value", dead_letter_topic="orders.dead",
                   kafka={"bootstrap.servers": "localhost:9092"})
    typed.select("value.*")

Every record is read by the schema that it was written with, and becomes a column of one type: that of the reader's
schema, which is the newest of `subject`, or the one that is given. Registries are asked over plain HTTP: Ottla's or any
other with Confluent's API.
"""

from __future__ import annotations

from ottla.spark.avro.functions import (
    UndecodableRecord,
    decode,
    from_confluent_avro,
    schema_of,
    to_confluent_avro,
)

__all__ = ["UndecodableRecord", "decode", "from_confluent_avro", "schema_of", "to_confluent_avro"]
