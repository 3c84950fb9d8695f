"""A running member's work on its volume.

group_commit  at most one flush in flight, for everything written before it began
flush_thread  the thread that flushes
health        full, nearly full and stalled volumes
upkeep        once a second: checkpoints, retention, preallocation
wall_clock    the time by which segments expire, without implausible steps
"""
