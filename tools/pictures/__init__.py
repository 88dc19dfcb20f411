"""The pictures of "How it works", drawn from runs of the simulator.

A `stage` is a cluster of real nodes on virtual time, with all checkers looking on; a scene (`scenes`) has something
happen on it, and what the nodes held and said meanwhile is a `recording`. `curves`, `cells` and `lanes` make drawings
of recordings (`svg`). The same code gives the same pictures: `make pictures` writes them, and a test draws them again.
"""
