"""Topics as DataFrames: what a query reads, batch and stream.

The driver's side makes ranges of offsets of a query's options: `batch` once, `stream` for each micro-batch, by what
`cluster` tells of topics and `offsets` reckons. A task reads one range as Arrow batches (`ranges`).
"""
