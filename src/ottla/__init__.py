"""Ottla: Kafka's little sister. The rooms and what each may import are drawn in ARCHITECTURE.md."""

__version__ = "0.1.0"
