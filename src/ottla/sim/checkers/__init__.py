"""What must be true, looked at after every step, and of the clients' histories at the end.

Each checker names the invariants that it holds nodes to. They look at the nodes' state directly, read files past the
seams, and change nothing: a simulation with checkers has the same trace as one without.
"""
