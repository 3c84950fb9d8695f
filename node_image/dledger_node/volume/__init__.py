"""A running member's work on its volume.

group_commit  at most one flush in flight, for everything written before it began
disk_thread   a thread for work that blocks on the disk
health        full, nearly full and stalled volumes
saves         term and vote, saved in a thread
scrub         reads the whole log now and then, and mends what has rotted
upkeep        once a second: checkpoints, retention, preallocation
wall_clock    the time by which segments expire, without implausible steps
"""
