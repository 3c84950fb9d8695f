"""A whole group in one thread: real cores, and a clock, a network and disks that obey one seed.

What belongs here: the stand-ins, the faults, and the judges, who look at the group from outside.
What does not: rules of Raft, which would judge themselves, and anything that reads a real clock.
"""
