"""Other programs' config files: import from them, point them at Roster, and restore them."""

__all__: list[str] = []
