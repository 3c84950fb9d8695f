"""Moving the leadership on purpose: to the preferred leader, off nodes that are being drained, and
to a member that somebody asked for.
"""
