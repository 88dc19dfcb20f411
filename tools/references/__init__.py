"""The reference pages that are made from the code's own tables: APIs, error codes and commands.

`make references` writes them, and with them those whose tables make their own page (`ottla.config.reference`,
`ottla.metrics.reference`). That they are fresh is a test.
"""
