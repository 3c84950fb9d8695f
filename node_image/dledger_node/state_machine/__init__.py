"""The state machine: the state that results from the log's entries, if the group keeps one.

machine   the interface of a state machine
machines  the state machines by name
register  DLedger's example: a map from numbers to numbers
keeper    the state of one member: the machine and its snapshots
apply     committed entries on their way to the machine
catching_up  whether the state is behind the log with which the member started
restore   how a member restores its state from snapshots and log: pure rules
install   a snapshot on its way from a leader to a member that lacks removed entries
fetch     which bytes of a snapshot a member asks for: pure rules
send      which bytes of its snapshots a member sends: pure rules
"""
