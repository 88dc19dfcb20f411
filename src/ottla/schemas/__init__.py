"""Schemas: what they mean, whether one can read what another wrote, and how a record names the one it was written with.

Pure. The registry (`ottla.gateway.registry`) judges new versions with it, the Spark functions (`ottla.spark.avro`) plan
their decoding with it.

    avro            an Avro schema as a graph of types, and back as the text that Avro's Java library would write
    avro_values     one value in Avro's binary encoding, to JSON and back
    compatibility   may a reader with this Avro schema read what was written with that one?
    json_compatibility      the same of JSON schemas
    protobuf        a Protobuf schema, from its text or its descriptor (protobuf_types, protobuf_descriptor)
    protobuf_values one message in Protobuf's encoding, to JSON and back (protobuf_shapes: names; _reading, _writing,
                    _wire: bytes; _well_known: Google's own types)
    protobuf_compatibility  may a reader with this one read what was written with that one?
    kinds           one row a type of schema: how its text is read, and what judges compatibility
    references      what a schema needs of others, in an order in which it can be read
    framing         the five bytes in front of a record that name its schema
"""
