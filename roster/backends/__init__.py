"""MCP clients of the user's servers. With `server`, the only place that knows protocol types."""

from roster.backends.backend import Backend, State
from roster.backends.exchange import Answer
from roster.backends.flights import Requester, requester
from roster.backends.link import Link
from roster.backends.pool import Pool
from roster.backends.switchboard import Peer
from roster.backends.transports import ErrorKind
from roster.backends.wire import Listing

__all__ = ["Answer", "Backend", "ErrorKind", "Link", "Listing", "Peer", "Pool", "Requester", "State", "requester"]
