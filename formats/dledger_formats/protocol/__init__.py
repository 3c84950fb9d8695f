"""DLedger's client protocol: remoting frames, and the JSON bodies of requests and responses.

`frames` and `requests` are DLedger's own. The other modules are the project's extensions, one for
each request. Nothing here opens a socket.
"""
