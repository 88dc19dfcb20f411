"""Answering Fetch, of consumers and of followers: sessions, reading a partition, cold files brought in ahead."""
