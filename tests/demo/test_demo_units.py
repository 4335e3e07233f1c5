"""The measuring server converts exactly and refuses nonsense."""

from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from roster.demo.units import UNITS, build_server, find_unit

pytestmark = pytest.mark.anyio


@pytest.fixture
def units() -> MCPServer:
    return build_server()


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (26.2, "miles", "km", 42.1648128),
        (1, "foot", "inches", 12),
        (100, "degrees Celsius", "°F", 212),
        (-40, "fahrenheit", "C", -40),
        (0, "celsius", "kelvin", 273.15),
        (1, "GiB", "MB", 1073.741824),
        (8, "bits", "byte", 1),
        (100, "km/h", "metres per second", 27.7777777778),
        (150, "lb", "kilograms", 68.0388555),
        (2, "hours", "s", 7200),
        (1, "hectare", "square feet", 107639.104167),
        (1, "gallon", "liters", 3.785411784),
        (1, "kWh", "kcal", 860.420650096),
        (1, "atmosphere", "psi", 14.6959487755),
    ],
)
async def test_quantities_are_converted(
    units: MCPServer, ask: Any, value: float, old: str, new: str, expected: float
) -> None:
    """Twelve significant digits, by symbol or name, singular or plural."""
    assert (await ask(units, "convert_units", value=value, from_unit=old, to_unit=new))["value"] == expected


async def test_a_conversion_is_told_in_a_sentence(units: MCPServer, ask: Any) -> None:
    """The sentence can be shown to a person as it is."""
    reply = await ask(units, "convert_units", value=72, from_unit="in", to_unit="cm")

    assert reply == {"value": 182.88, "unit": "cm", "sentence": "72 in = 182.88 cm"}


async def test_nonsense_is_refused(units: MCPServer, refusal: Any) -> None:
    """Two kinds, an unknown unit and a temperature that cannot be are clear errors."""
    assert "measures mass" in await refusal(units, "convert_units", value=1, from_unit="kg", to_unit="km")
    assert "'parsnip'" in await refusal(units, "convert_units", value=1, from_unit="parsnip", to_unit="km")
    assert "absolute zero" in await refusal(units, "convert_units", value=-300, from_unit="°C", to_unit="K")


async def test_units_are_listed_by_kind(units: MCPServer, ask: Any, refusal: Any) -> None:
    """An unknown kind gives the known ones."""
    temperatures = await ask(units, "list_units", kind="temperature")

    assert [unit["symbol"] for unit in temperatures] == ["K", "°C", "°F"]
    assert len(await ask(units, "list_units")) == len(UNITS)
    assert "data size" in await refusal(units, "list_units", kind="charm")


def test_every_unit_is_found_by_its_own_symbol_and_name() -> None:
    """No symbol or name hides another unit."""
    for unit in UNITS:
        assert find_unit(unit.symbol) is unit
        assert find_unit(unit.name) is unit
        assert find_unit(unit.name.upper()) is unit


def test_units_are_found_as_people_say_them() -> None:
    """Plurals, American spelling, and the capitals that tell megabits from megabytes and food calories from others."""
    said = {
        "feet": "ft",
        "Miles per Hour": "mph",
        "pounds per square inch": "psi",
        "US cups": "cup",
        "kilometers": "km",
        "lbs": "lb",
        "square meters": "m²",
        "mb": "MB",
        "Mb": "Mbit",
        "Cal": "kcal",
        "cal": "cal",
    }
    for word, symbol in said.items():
        assert find_unit(word).symbol == symbol
