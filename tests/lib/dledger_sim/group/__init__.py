"""The simulated group: members around production cores, their disks, the network and time."""
