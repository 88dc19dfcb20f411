"""A deterministic simulator: real nodes in one process, on virtual time, under a seed, with everything failing around
them.

`loop` gives each node an asyncio event loop of its own, all of them on one virtual clock; `disk`, `network`, `clock`
and `offload` stand in for the seams of `runtime`; `cluster` starts, crashes, pauses and restarts nodes; `client` and
`workload` use them and write down what they were told; `faults` does the damage; `checkers` look at the nodes after
every step and at the clients' histories at the end; `run` puts one seed together, and many.

The same seed gives the same trace. Nothing here asks the machine for the time, for chance, or for a thread.
"""
