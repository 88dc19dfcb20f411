"""Records of `__cluster_metadata` in, images and deltas out.

Owns the meaning of every metadata record (`delta.py`), the images that nodes look things up in (`images.py`), and the
form of both in log and snapshot (`records.py`, `snapshot.py`). Pure: the controller's driver and the
broker's feed it batches in the order of the log (`state.py`), and it returns the next image. Its invariant is that the
same batches give the same image on every node, whatever snapshot the node began from.
"""
