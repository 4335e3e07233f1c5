"""A clock and calendar server: `python -m roster.demo.clock`. Times are ISO 8601, zones IANA names."""

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from roster import __version__
from roster.demo.serving import READS

__all__ = ["build_server", "main"]

Zone = Annotated[str, Field(description="Time zone by its IANA name, such as 'Europe/Paris' or 'UTC'")]
Amount = Annotated[int, Field(description="How many to add; negative goes back")]


@dataclass(frozen=True)
class Moment:
    """One moment as a clock on the wall of its zone shows it."""

    time: str
    timezone: str
    weekday: str


@dataclass(frozen=True)
class Conversion:
    """The same moment in two zones."""

    source: Moment
    target: Moment
    hours_ahead: float


@dataclass(frozen=True)
class Span:
    """The distance from one date to another; negative when the end comes first."""

    days: int
    weeks_and_days: str
    start_weekday: str
    end_weekday: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The tools: each method is one, and its docstring is what the client reads."""

    now: Callable[[], datetime]

    def current_time(self, timezone: Zone = "UTC") -> Moment:
        """Tell today's date and the time right now in a time zone."""
        return _moment(self.now().astimezone(_zone(timezone)), timezone)

    def convert_time(
        self,
        time: Annotated[str, Field(description="Clock time today such as '14:30', or a full '2026-03-01T14:30'")],
        source_timezone: Zone,
        target_timezone: Zone,
    ) -> Conversion:
        """Convert a time of day from one time zone to another."""
        source, target = _zone(source_timezone), _zone(target_timezone)
        if "T" not in time and "-" not in time:
            time = f"{self.now().astimezone(source).date()}T{time}"
        here = _read(time, source)
        try:
            there = here.astimezone(target)
        except OverflowError as problem:
            raise ToolError(f"{time!r} is outside the years 1 to 9999 in {target_timezone}") from problem
        ahead = (there.utcoffset() or timedelta()) - (here.utcoffset() or timedelta())
        return Conversion(_moment(here, source_timezone), _moment(there, target_timezone), ahead / timedelta(hours=1))

    def days_between(
        self,
        start: Annotated[date, Field(description="First date, such as '2026-01-31'")],
        end: Annotated[date, Field(description="Second date")],
    ) -> Span:
        """Count the days from one date to another."""
        days = (end - start).days
        weeks, rest = divmod(abs(days), 7)
        return Span(days, f"{weeks} weeks and {rest} days", f"{start:%A}", f"{end:%A}")

    def add_duration(
        self,
        start: Annotated[str, Field(description="Date or date and time to begin at, such as '2026-01-31T09:00'")],
        months: Amount = 0,
        weeks: Amount = 0,
        days: Amount = 0,
        hours: Amount = 0,
        minutes: Amount = 0,
        timezone: Zone = "UTC",
    ) -> Moment:
        """Work out the date and time some months, weeks, days, hours or minutes before or after another."""
        zone = _zone(timezone)
        try:
            begun = _read(start, zone)
            # Months, weeks and days keep the hour on the wall; hours and minutes are time that truly passes.
            calendar = _add_months(begun, months) + timedelta(weeks=weeks, days=days)
            passed = calendar.astimezone(UTC) + timedelta(hours=hours, minutes=minutes)
            return _moment(passed.astimezone(zone), timezone)
        except OverflowError as problem:
            raise ToolError("That leads outside the years 1 to 9999; use a smaller amount") from problem

    def list_timezones(
        self, containing: Annotated[str, Field(description="Part of the name, such as 'asia' or 'new york'")] = ""
    ) -> list[str]:
        """List the names of known time zones, all or those that contain a word."""
        return _zones_like(containing)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
        # "paris" and "new york" deserve a pointer to Europe/Paris and America/New_York.
        near = _zones_like(name)[:5] if name else []
        hint = f"did you mean {', '.join(near)}?" if near else "list_timezones gives the known names"
        raise ToolError(f"There is no time zone {name!r}; {hint}") from problem


def _zones_like(word: str) -> list[str]:
    if not (zones := available_timezones()):
        raise ToolError("This system has no time zone data; install the `tzdata` package: pip install tzdata")
    wanted = word.strip().replace(" ", "_").casefold()
    return sorted(zone for zone in zones if wanted in zone.casefold())


def _read(time: str, zone: ZoneInfo) -> datetime:
    """The moment `time` names, in `zone`; read as a time in `zone` unless it carries an offset of its own."""
    try:
        parsed = datetime.fromisoformat(time)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)).astimezone(zone)
    except (ValueError, OverflowError) as problem:
        raise ToolError(f"{time!r} is not an ISO time such as '14:30' or '2026-03-01T14:30'") from problem


def _add_months(moment: datetime, months: int) -> datetime:
    """The same day `months` later, or the last of that month when it is shorter."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"year {year}")
    return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))


def _moment(moment: datetime, timezone: str) -> Moment:
    return Moment(moment.isoformat(timespec="seconds"), timezone, f"{moment:%A}")


def _utc_now() -> datetime:
    return datetime.now(UTC)


def build_server(now: Callable[[], datetime] = _utc_now) -> MCPServer:
    """A server that tells `now` and reckons with dates."""
    clock = Clock(now)
    server = MCPServer(
        "clock", instructions="Tell the time and reckon with dates and zones.", version=__version__, log_level="WARNING"
    )
    for tool in (clock.current_time, clock.convert_time, clock.days_between, clock.add_duration, clock.list_timezones):
        server.add_tool(tool, annotations=READS)
    return server


def main() -> None:
    """Serve over stdio."""
    build_server().run()


if __name__ == "__main__":
    main()
