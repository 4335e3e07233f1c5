"""Roster: one MCP server in front of all of a user's MCP servers and skills."""

__all__ = ["__version__"]

__version__ = "0.1.0"
