"""The formats that two programs share: bytes or JSON in, values out.

What belongs here: layouts, names, encoders, decoders and the checks that make them safe. Nothing
here keeps a clock or knows which program is running, and only `net` opens a socket.

    log        entries, index units and memberships as they lie in DLedger's files
    protocol   remoting frames and the requests of DLedger's client protocol
    http       what members say of themselves over HTTP
    net        how a request reaches a member: the only IO
    settings   a member's environment variables
    audit      what an audit tells the operator
"""
