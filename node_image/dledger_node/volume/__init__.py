"""What a running member does about its volume.

group_commit  at most one flush in flight, for everything written before it began
flush_thread  the thread that flushes
health        full, nearly full, stalled or damaged volumes
upkeep        once a second: checkpoints, retention, segments made ahead
"""
