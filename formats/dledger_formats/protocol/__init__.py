"""DLedger's client protocol: remoting frames, and the JSON bodies of requests and responses.

    frames           the frames that carry requests and responses
    codes            the codes of requests and of responses
    requests, entry  DLedger's own requests, and an entry in their responses
    decoding         JSON as bytes: strict decoding, and the two forms of `byte[]`
    long_body        the one part of a request that may be long
    administration   what requests that change a group have in common

Every other module is one request; all of those but `leadership_transfer` are extensions of this
project. Nothing here opens a socket.
"""
