"""A measuring server: `python -m roster.demo.units`. Factors are exact by definition where a definition exists."""

from dataclasses import dataclass
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from roster import __version__
from roster.demo.serving import READS

__all__ = ["build_server", "main"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: a value in it, plus `offset`, times `factor`, is a value in the first unit of its kind."""

    symbol: str
    name: str
    kind: str
    factor: float
    offset: float = 0.0


# Kind, then its units: symbol, name, size in the kind's first unit (and for temperatures an offset added before).
_TABLE: dict[str, tuple[tuple[str, str, float] | tuple[str, str, float, float], ...]] = {
    "length": (
        ("m", "metre", 1), ("km", "kilometre", 1000), ("cm", "centimetre", 0.01), ("mm", "millimetre", 0.001),
        ("in", "inch", 0.0254), ("ft", "foot", 0.3048), ("yd", "yard", 0.9144), ("mi", "mile", 1609.344),
        ("nmi", "nautical mile", 1852),
    ),
    "mass": (
        ("kg", "kilogram", 1), ("g", "gram", 0.001), ("mg", "milligram", 1e-6), ("t", "tonne", 1000),
        ("oz", "ounce", 0.028349523125), ("lb", "pound", 0.45359237), ("st", "stone", 6.35029318),
    ),
    "temperature": (
        ("K", "kelvin", 1), ("°C", "celsius", 1, 273.15), ("°F", "fahrenheit", 5 / 9, 459.67),
    ),
    "data size": (
        ("B", "byte", 1), ("bit", "bit", 0.125), ("kbit", "kilobit", 125), ("Mbit", "megabit", 125e3),
        ("Gbit", "gigabit", 125e6), ("kB", "kilobyte", 1e3), ("MB", "megabyte", 1e6),
        ("GB", "gigabyte", 1e9), ("TB", "terabyte", 1e12), ("KiB", "kibibyte", 2**10), ("MiB", "mebibyte", 2**20),
        ("GiB", "gibibyte", 2**30), ("TiB", "tebibyte", 2**40),
    ),
    "speed": (
        ("m/s", "metre per second", 1), ("km/h", "kilometre per hour", 1 / 3.6), ("mph", "mile per hour", 0.44704),
        ("kn", "knot", 1852 / 3600), ("ft/s", "foot per second", 0.3048),
    ),
    "time": (
        ("s", "second", 1), ("ms", "millisecond", 0.001), ("min", "minute", 60), ("h", "hour", 3600),
        ("d", "day", 86_400), ("wk", "week", 604_800),
    ),
    "area": (
        ("m²", "square metre", 1), ("km²", "square kilometre", 1e6), ("ha", "hectare", 1e4),
        ("ft²", "square foot", 0.09290304), ("ac", "acre", 4046.8564224),
    ),
    "volume": (
        ("L", "litre", 1), ("mL", "millilitre", 0.001), ("m³", "cubic metre", 1000),
        ("tsp", "US teaspoon", 0.00492892159375), ("tbsp", "US tablespoon", 0.01478676478125),
        ("cup", "US cup", 0.2365882365), ("gal", "US gallon", 3.785411784), ("pt", "imperial pint", 0.56826125),
    ),
    "energy": (
        ("J", "joule", 1), ("kJ", "kilojoule", 1000), ("cal", "calorie", 4.184), ("kcal", "kilocalorie", 4184),
        ("kWh", "kilowatt hour", 3.6e6),
    ),
    "pressure": (
        ("Pa", "pascal", 1), ("kPa", "kilopascal", 1000), ("bar", "bar", 1e5), ("atm", "atmosphere", 101_325),
        ("psi", "pound per square inch", 6894.757293168),
    ),
}  # fmt: skip
UNITS = tuple(Unit(symbol, name, kind, *rest) for kind, rows in _TABLE.items() for symbol, name, *rest in rows)
_EXACT = {"Mb": "Mbit", "Gb": "Gbit", "Cal": "kcal"}  # here a capital changes the meaning
_SINGULAR = {"feet": "foot", "inches": "inch"}

UnitName = Annotated[str, Field(description="Unit by symbol or name, such as 'km', 'miles', '°F' or 'GiB'")]


@dataclass(frozen=True)
class Measure:
    """A converted value with twelve significant digits."""

    value: float
    unit: str
    sentence: str


@dataclass(frozen=True)
class UnitRow:
    """A unit that can be converted to any other of its kind."""

    symbol: str
    name: str
    kind: str


def convert_units(
    value: Annotated[float, Field(description="How much there is", allow_inf_nan=False)],
    from_unit: UnitName,
    to_unit: UnitName,
) -> Measure:
    """Convert a quantity between units of length, mass, temperature, data size, speed, time, area, volume and more."""
    old, new = find_unit(from_unit), find_unit(to_unit)
    if old.kind != new.kind:
        raise ToolError(f"{old.name} measures {old.kind}, {new.name} measures {new.kind}; choose units of one kind")
    in_base = (value + old.offset) * old.factor
    if old.kind == "temperature" and in_base < 0:
        raise ToolError(f"{value:g} {old.symbol} is below absolute zero")
    result = float(f"{in_base / new.factor - new.offset:.12g}")
    return Measure(result, new.symbol, f"{value:.12g} {old.symbol} = {result:.12g} {new.symbol}")


def list_units(
    kind: Annotated[str | None, Field(description="Only one kind, such as 'length'; all when left out")] = None,
) -> list[UnitRow]:
    """List the units that can be converted, all or those of one kind of quantity."""
    if kind is not None and kind not in _TABLE:
        raise ToolError(f"There is no kind {kind!r}; the kinds are {', '.join(_TABLE)}")
    return [UnitRow(unit.symbol, unit.name, unit.kind) for unit in UNITS if kind in (None, unit.kind)]


def find_unit(word: str) -> Unit:
    """The unit with this symbol, or this name in any spelling of case and plural, -metre or -meter."""
    symbol = _EXACT.get(word.strip(), word.strip())
    for unit in UNITS:
        if symbol == unit.symbol:
            return unit
    spellings = {symbol.casefold().removeprefix("°"), _plain(symbol.casefold().removeprefix("degrees "))}
    for unit in UNITS:
        short = unit.name.removeprefix("US ").removeprefix("imperial ")
        if spellings & {unit.symbol.casefold().removeprefix("°"), _plain(unit.name), _plain(short)}:
            return unit
    raise ToolError(f"There is no unit {word!r}; list_units gives the known ones")


def _plain(name: str) -> str:
    """`name` without capitals and plural, so that "Square Feet" and "square foot" are one."""
    words = (_SINGULAR.get(word, word).removesuffix("s") for word in name.casefold().split())
    return " ".join(words).replace("meter", "metre").replace("liter", "litre")


def build_server() -> MCPServer:
    """A server that converts units."""
    server = MCPServer(
        "units", instructions="Convert quantities between units of measure.", version=__version__, log_level="WARNING"
    )
    server.add_tool(convert_units, annotations=READS)
    server.add_tool(list_units, annotations=READS)
    return server


def main() -> None:
    """Serve over stdio."""
    build_server().run()


if __name__ == "__main__":
    main()
