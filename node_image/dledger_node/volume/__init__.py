"""A running member's work on its volume.

group_commit  at most one flush in flight, for everything written before it began
flush_thread  the thread that flushes
health        full, nearly full and stalled volumes
scrub         reads the whole log now and then, and mends what has rotted
upkeep        once a second: checkpoints, retention, preallocation
wall_clock    the time by which segments expire, without implausible steps
"""
