"""Five small MCP servers that need no network, no key and no other program: something to route on the first minute.

Each runs by itself over stdio: `python -m roster.demo.files ROOT`, `python -m roster.demo.notes FILE`,
`python -m roster.demo.clock`, `python -m roster.demo.units`, `python -m roster.demo.tables FOLDER`.
"""

__all__: list[str] = []
