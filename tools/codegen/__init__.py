"""Writes `src/ottla/wire/messages/` from the message definitions inside Apache Kafka's jars.

    python -m tools.codegen DIRECTORY_OF_JARS

The jars named in `definitions.JARS` must be in the directory. The output depends on nothing but their content, so that
a second run changes nothing and a newer Kafka shows as a readable difference. Only names, types, versions and defaults
are taken over.
"""
