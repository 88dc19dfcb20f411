"""Configuration: one table of keys, and all that is derived from it.

`table` finds a row, `key` says what a row is and parses values, `properties` reads and writes Java's format, `node` is
the configuration of one node, `topic`, `group` and `dynamic` check what may be altered while it runs, `alter` applies
a change, `describe` answers DescribeConfigs, and `reference` writes the manual's page. Nothing here touches a file, a
clock or the network; the callers bring text and get values.
"""
