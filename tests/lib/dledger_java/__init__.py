"""Java DLedger's own client as a process. Groups of Java members are in `tools.groups`."""
