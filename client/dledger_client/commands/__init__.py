"""The commands of `dledger`, one module each.

`add_parser` defines the command's arguments, `run` executes it. Does not belong here: the protocol,
and anything that another program might call.
"""
