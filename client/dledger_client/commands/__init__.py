"""The commands of `dledger`, one module each: `add_parser` says what it takes, `run` does it.

What does not belong here: the protocol, and anything that another program might call.
"""
