"""Members' snapshots of the state, as an audit reads them; `checks.snapshot` judges them.

reading     one snapshot of one member, byte by byte
gathering   all snapshots of all members, while the members replace them
registers   the register by columns: what entries change, and the bytes of its snapshot
replay      a state and the entries after it give the next state
steps       what the entries of the log between two snapshots do, as Spark's workers read them
"""
