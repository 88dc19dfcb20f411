"""The transaction coordinator: who writes under a transactional id, and how its transactions end (KIP-98, KIP-890).

One `TransactionShard` holds the transactional ids of one partition of `__transaction_state`. A transaction is what its
newest record says: a state, the producer's id and epoch, and the partitions that were added.

    InitProducerId            a producer id and a new epoch for the transactional id; whoever had it is fenced
    AddPartitionsToTxn        the partitions that the transaction writes to: before it does so
    AddOffsetsToTxn           the same, for the partition that holds a group's offsets
    EndTxn                    the decision. Once its record is committed nothing can change it …
      → SendMarkers           … and every partition is told by a marker, for as long as it takes
      → on_markers_written    when all have it, the transaction is complete, and the next may begin

The states and their moves are in `states.py`, what each move does to a transaction in `transaction.py`, and `shard.py`
says when it is made. `broker/coordinators` drives the shard; its `marker_sender.py` sends the markers.

Two sets of rules live side by side, and each request says by its version which of them its client follows:

- version 1: the epoch changes only in InitProducerId and when a producer is fenced;
- version 2 (KIP-890): the epoch also rises whenever a transaction ends, so that (producer id, epoch) names one
  transaction, and nothing that was delayed can act on a later one.

What the coordinator ends by itself, because of a timeout or a new producer, follows the feature `transaction.version`.
"""
