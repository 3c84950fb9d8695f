"""Judges: the rules that no run may break.

What belongs here: checks of disks, messages and answers. A judge never inspects a core beyond what
the core reports to its shell.

- `checker`: the committed log and its leaders; all other judges are parts of it
- `promise_rules`: terms, votes, and lost or rolled-back disks
- `push_rules`: the size and number of pushes
- `membership_rules`: membership changes and majorities
- `state_rules`: applied entries and snapshots
- `rot_rules`: rotten entries
- `broker_log`, `broker_rules`: the committed messages of brokers, and the answers to their clients
- `history`: the answers to all clients, after the run
- `recovery`: the group after the faults have ended
- `violation`: the error that ends a run
"""
