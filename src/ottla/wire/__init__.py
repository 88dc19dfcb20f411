"""Kafka's wire protocol: messages and their codecs, frames, and the table of APIs.

Owns the meaning of bytes between Kafka's peers, and does no I/O. `messages/` is generated from the definitions that
ship with Apache Kafka; `message`, `schema`, `encoding` and `decoding` give those classes their codecs at first use;
`primitives` and `frames` serve the paths written by hand; `apis` has one row an API. Importing this room costs next
to nothing: nothing is compiled or loaded before it is used.
"""
