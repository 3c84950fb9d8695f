"""The checks: pure functions from digests to findings, without Spark.

table        the digests of all members as columns
electorate   whose copies count, and which indexes each member should hold
integrity    damage, for each member by itself
continuity   gaps, repetitions and terms that go back, where segments meet
comparison   pieces of all members: which agree, and which must be compared entry by entry
agreement    the entries of one such piece
coverage     totals
findings     runs of entries, and findings about them
"""
