"""Transactions as the brokers of their partitions see them: producer ids, the check before the first batch, markers."""
