"""How a group begins: which members vote first, its identity, and founding it again before it has
begun. The volume claims that record it are owned and grown by `volumes`.
"""
