"""A group of real members as processes on this machine, for users without a cluster.

Belongs here: the folder, the ports, the processes, and their observation. Does not belong here:
any decision of a member; the members are `dledger-node` processes, as in a pod.
"""
