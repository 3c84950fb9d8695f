"""GO_AWAY, an extension of this project: the last frame on a connection of a member that stops.

The member has answered every append that it has read from this connection, and reads nothing more.
So a request without an answer has had no effect and never will: the client sends it to another
member. (HTTP/2 has a frame of that name and purpose, RFC 9113, 6.8.) Reads that the member drops
have no effect either.

A client asks for the frame with a flag in its requests. Members of earlier releases and Java's
ignore the flag and close without the frame; the outcome of unanswered requests is then unknown.
Clients that do not ask for the frame get none.
"""

from typing import Final

from dledger_formats.protocol.frames import ONEWAY_FLAG, RemotingCommand, encode

GO_AWAY: Final = 52017
"""The code of the frame, from this project's range (52000 to 52999)."""
TAKES_GO_AWAY_FLAG: Final = 1 << 18
"""In any request but a plain APPEND, where it is not checked: the client understands GO_AWAY."""
GO_AWAY_FRAME: Final = encode(RemotingCommand(code=GO_AWAY, opaque=0, flag=ONEWAY_FLAG))
