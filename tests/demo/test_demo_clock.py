"""The clock server tells the time and reckons with dates."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest
from mcp.server.mcpserver import MCPServer

from roster.demo import clock as clock_module
from roster.demo.clock import build_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> MCPServer:
    """A clock that stands at a Sunday noon, one week before European clocks go forward."""
    return build_server(now=lambda: datetime(2026, 3, 22, 12, 0, tzinfo=UTC))


async def test_the_time_now_is_told_in_a_zone(clock: MCPServer, ask: Any) -> None:
    """UTC unless asked otherwise."""
    assert (await ask(clock, "current_time"))["time"] == "2026-03-22T12:00:00+00:00"
    assert await ask(clock, "current_time", timezone="Asia/Kolkata") == {
        "time": "2026-03-22T17:30:00+05:30",
        "timezone": "Asia/Kolkata",
        "weekday": "Sunday",
    }


async def test_a_time_today_is_converted(clock: MCPServer, ask: Any) -> None:
    """A bare clock time means today in the source zone, and may be another day in the target."""
    reply = await ask(
        clock, "convert_time", time="20:15", source_timezone="America/New_York", target_timezone="Asia/Tokyo"
    )

    assert reply["source"]["time"] == "2026-03-22T20:15:00-04:00"
    assert reply["target"]["time"] == "2026-03-23T09:15:00+09:00"
    assert reply["hours_ahead"] == 13


async def test_a_full_time_keeps_its_own_offset(clock: MCPServer, ask: Any) -> None:
    """An offset in the time wins over the source zone."""
    reply = await ask(
        clock, "convert_time", time="2026-07-01T10:00Z", source_timezone="Europe/Paris", target_timezone="UTC"
    )

    assert reply["source"]["time"] == "2026-07-01T12:00:00+02:00"


async def test_days_are_counted_both_ways(clock: MCPServer, ask: Any, refusal: Any) -> None:
    """Leap days count; an end before the start is negative; a day that does not exist is refused."""
    assert await ask(clock, "days_between", start="2028-02-28", end="2028-03-15") == {
        "days": 16,
        "weeks_and_days": "2 weeks and 2 days",
        "start_weekday": "Monday",
        "end_weekday": "Wednesday",
    }
    assert (await ask(clock, "days_between", start="2026-03-02", end="2026-03-01"))["days"] == -1
    assert "date" in await refusal(clock, "days_between", start="2026-02-30", end="2026-03-01")


@pytest.mark.parametrize(
    ("start", "amount", "expected"),
    [
        ("2026-01-31", {"months": 1}, "2026-02-28T00:00:00+01:00"),
        ("2026-01-31", {"months": -2}, "2025-11-30T00:00:00+01:00"),
        ("2026-03-28T12:00", {"days": 1}, "2026-03-29T12:00:00+02:00"),
        ("2026-03-28T12:00", {"hours": 24}, "2026-03-29T13:00:00+02:00"),
        ("2026-12-31T23:30", {"weeks": 1, "minutes": 45}, "2027-01-08T00:15:00+01:00"),
    ],
)
async def test_durations_are_added(
    clock: MCPServer, ask: Any, start: str, amount: dict[str, int], expected: str
) -> None:
    """A day is the same hour tomorrow even when clocks change; an hour is sixty minutes that pass."""
    assert (await ask(clock, "add_duration", start=start, timezone="Europe/Paris", **amount))["time"] == expected


async def test_amounts_beyond_the_calendar_are_refused(clock: MCPServer, refusal: Any) -> None:
    """Too far is an answer, not a crash."""
    for amount in ({"months": 10**6}, {"days": 10**7}, {"hours": 10**15}, {"days": -(10**7)}):
        assert "years 1 to 9999" in await refusal(clock, "add_duration", start="2026-01-01", **amount)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "", "Europe"])
async def test_a_zone_that_does_not_exist_is_a_clear_error(clock: MCPServer, refusal: Any, zone: str) -> None:
    """The reason names the zone asked for."""
    assert f"There is no time zone {zone!r}" in await refusal(clock, "current_time", timezone=zone)


async def test_a_city_gets_a_pointer_to_its_zone(clock: MCPServer, refusal: Any) -> None:
    """People say Paris; the zone is Europe/Paris."""
    assert "did you mean Europe/Paris?" in await refusal(clock, "current_time", timezone="paris")
    assert "America/New_York" in await refusal(clock, "current_time", timezone="new york")


async def test_a_time_that_cannot_be_read_is_refused(clock: MCPServer, refusal: Any) -> None:
    """The reason shows the form a time should have."""
    reason = await refusal(clock, "convert_time", time="half past two", source_timezone="UTC", target_timezone="UTC")

    assert "2026-03-01T14:30" in reason


async def test_zones_are_listed_by_part_of_their_name(clock: MCPServer, ask: Any) -> None:
    """A space stands for the underscore that zone names have."""
    assert await ask(clock, "list_timezones", containing="new york") == ["America/New_York"]
    assert "Europe/Paris" in await ask(clock, "list_timezones")


async def test_a_system_without_zone_data_is_told_what_to_install(
    clock: MCPServer, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows and small containers have no zone files: the remedy is the `tzdata` package."""

    def missing(name: str) -> None:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(clock_module, "ZoneInfo", missing)
    monkeypatch.setattr(clock_module, "available_timezones", set)

    assert "pip install tzdata" in await refusal(clock, "current_time", timezone="Europe/Paris")
    assert "pip install tzdata" in await refusal(clock, "list_timezones")
