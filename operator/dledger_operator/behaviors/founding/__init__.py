"""How a group begins: which members vote first, its identity, and founding it again before it has
begun. `volumes` sets the owners of the volume claims that record the founding, and grows them.
"""
