"""What passes between clients and backends besides tool calls: resources, prompts, logs, questions to the client."""

from roster.forwarding.bridge import HOLDING
from roster.forwarding.clients import Client, Voice
from roster.forwarding.forwarder import Forwarder
from roster.forwarding.handlers import Handlers, voice_of

__all__ = ["HOLDING", "Client", "Forwarder", "Handlers", "Voice", "voice_of"]
