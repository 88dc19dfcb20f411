"""What a node does to its logs and disks besides serving them: retention, compaction, moves, disks that fail."""
