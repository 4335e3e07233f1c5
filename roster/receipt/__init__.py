"""What the context of each MCP client costs, now and with Roster: what `roster receipt` shows."""

__all__: list[str] = []
