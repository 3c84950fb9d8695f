"""A group of real members as processes on this machine, for someone who has no cluster.

What belongs here: the folder, the ports, the processes, and what is seen of them. What does not:
anything that a member decides; the members are `dledger-node`, as in a pod.
"""
