"""Members' snapshots of the state, as an audit reads them. The judgement is in `checks.snapshot`.

reading     one snapshot of one member, byte by byte
gathering   all snapshots of all members, while the members replace them
"""
