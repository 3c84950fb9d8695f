"""The checks: pure functions from digests and manifests to findings, without Spark.

table        the digests of all members as columns
electorate   whose copies count, and which indexes each member should hold
integrity    damage, for each member by itself
continuity   gaps, repetitions and terms that go back, where segments meet
removed      what is missing before a log's first entry, and whether a rule explains it
next_removal  what retention removes next, and what holds it back
snapshot     the snapshots of the state: their bytes, places, and that members agree
replayed     which snapshots are not the state that the log leads to
comparison   pieces of all members: which agree, and which must be compared entry by entry
agreement    the entries of one such piece
seen         differences of such pieces that only the first reading shows
history      what was read, compared with what earlier audits read
coverage     totals
findings     runs of entries, and findings about them
"""
