"""Faults: what goes wrong, when, and on which member.

What belongs here: draws of faults and requests, and the limits within which a fault is allowed.

- `stress`: the faulty part of a run: clients and the nemesis
- `nemesis`: draws strikes and their targets
- `planning`: the form of a strike: acts with their delays
- `member_faults`, `network_faults`: strikes that random faults consist of
- `strikes`: strikes that set up one specific situation
- `acts`: requests and faults as lines of a tape
- `reshaping`: membership changes, and disks that the group can lose
- `older_disks`: rolled-back disks
- `rotting`, `rot_lives`: rotten log entries, and runs with them
- `broker_lives`: groups of brokers, and the requests of their clients
- `mending`, `disjoint_rot`: rot on several members, which mend it from each other
"""
