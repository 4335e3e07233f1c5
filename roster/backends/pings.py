"""Whether a remote server still knows a session, as its answer to a ping shows; for as long as that shows anything.

Servers differ: some know no ping, some answer it with an error whatever the session, some never answer. None of that
may cost a session that is sound, nor more than one call the time of finding out.
"""

from __future__ import annotations

from roster.backends.link import Link

__all__ = ["Pings"]


class Pings:
    """What one server's answers to pings have shown so far. tell: whether they say anything of a session."""

    def __init__(self) -> None:
        self.tell = True

    async def forgotten(self, link: Link, status: int | None = None) -> bool:
        """Whether the session is not known any more. status: that of an answer which may say so, if one came.

        Where pings say nothing, 404 is taken at its word, as the protocol has it.
        """
        if not self.tell:
            return status == 404
        said = await link.forgotten()
        if said is None:
            self.tell = False
            return status == 404
        return said

    async def learn(self, fresh: Link) -> None:
        """A session was given up for what a ping said. What is said of a new one shows whether that meant anything."""
        if self.tell and await fresh.forgotten() is not False:
            self.tell = False
