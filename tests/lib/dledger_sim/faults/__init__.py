"""What goes wrong, when, and to which member: the nemesis, its strikes, older and rotting disks."""
