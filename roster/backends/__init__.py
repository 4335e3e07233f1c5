"""MCP clients of the user's servers. With `server`, the only place that knows protocol types."""

from roster.backends.backend import Answer, Backend, State
from roster.backends.pool import Pool
from roster.backends.transports import ErrorKind
from roster.backends.wire import Listing

__all__ = ["Answer", "Backend", "ErrorKind", "Listing", "Pool", "State"]
