"""The simulated group: members with production cores and loops, their disks, the network and time.

What belongs here: everything that a run needs without faults, and the state that faults change.

- `cluster`: the group with the operations that faults and tests use
- `running`: the events of the group: ticks, messages, flushes and starts
- `events`: simulated time, a heap of planned calls
- `world`: the interface between a member and the group
- `member`: one member: its core, loop and clients' requests
- `store`, `links`: a member's disk and network, as the production loop uses them
- `keeper`, `snapshots`: a member's state and its snapshots
- `disk`, `rotting_disk`: what a crash leaves, and entries that rot
- `stored_log`: a log as the files that a real member would have
- `network`: loss, duplication and delay
- `pushed`, `membership_bodies`: the contents of simulated entries
- `kinds`, `wire`: descriptions of messages, and messages as real bytes
- `clients`: requests of clients and administrators
- `conditions`: sizes, speeds, rates and allowed faults
- `moments`: moments at which the nemesis may strike
"""
