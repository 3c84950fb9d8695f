"""A deterministic simulator of whole groups, in one thread and controlled by one seed.

The members run the node's own Raft core and loop. What belongs here: stand-ins for the clock, the
network and the disks, the faults, and the judges, which inspect the group from outside. What does
not: Raft rules, because a simulator that contains them would test itself, and any real clock.

- `group`: the simulated group
- `broker`: the same with a broker on each member, and its clients
- `faults`: what goes wrong, when, and on which member
- `judges`: the rules that no run may break
- `runs`: seeds, tapes and campaigns
- `search`: every run of a small group, and random messages to one core
- `stage`: cores without randomness, for tests and scripts
- `mutants`: planted bugs, and the hunt for them

`python -m dledger_sim` runs seeds; see docs/simulator.md.
"""
