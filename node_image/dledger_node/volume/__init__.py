"""A running member's work on its volume.

group_commit  at most one flush in flight, for everything written before it began
disk_thread   a thread for work that blocks on the disk
health        full, nearly full and stalled volumes
handover      when and to which peer a leader hands over if its volume is full or its disk hangs
disk_calls    saves of term and vote, truncations: calls in a thread that may take long
scrub         reads the whole log within an interval, and mends what has rotted
upkeep        once a second: checkpoints, retention, preallocation
retention_state  the state of retention, for its records and `/manifest`; no IO
wall_clock    the time by which segments expire, without implausible steps
"""
