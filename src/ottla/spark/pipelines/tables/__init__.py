"""Tables that a pipeline fills exactly once: Iceberg, Delta, Parquet.

Tasks write Parquet files that belong to no table yet (`files`); the driver adds those of one batch in one commit, which
also records the batch's number under the pipeline's name (`iceberg`, `delta`). A batch that comes again is known by
its number and left out; files of a batch that never came to its commit are nobody's, and removed at the next start.
"""
