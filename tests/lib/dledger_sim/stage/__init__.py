"""A group without chance: a test or a script plays its peers, its clock and its disks."""
