"""Human-readable numbers for messages, tables, charts and reports."""

from __future__ import annotations

import math

_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB")


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    Args:
        count: how many.
        noun: the noun in the singular.
        plural: its plural; by default ``noun`` with an s.

    Example:
        >>> format_count(1, "row"), format_count(2000, "row"), format_count(2, "process", "processes")
        ('1 row', '2,000 rows', '2 processes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_number(value: float) -> str:
    """Return a non-negative number with three significant digits, a comma between thousands and no exponent.

    Example:
        >>> format_number(3700.4), format_number(99.96), format_number(1.25), format_number(0.00001), format_number(0)
        ('3,700', '100', '1.25', '< 0.0001', '0')
    """
    if 0 < value < 1e-4:
        return "< 0.0001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_percent(fraction: float, decimals: int | None = None) -> str:
    """Return a fraction as a percentage.

    Args:
        fraction: usually in [0, 1].
        decimals: number of decimals; None for three significant digits, with "0%" and "100%" only for exactly 0 and 1.

    Example:
        >>> format_percent(0.1234), format_percent(0.99999), format_percent(1), format_percent(1e-9)
        ('12.3%', '> 99.9%', '100%', '< 0.01%')
        >>> format_percent(0.12345, decimals=1), format_percent(0.00012, decimals=2)
        ('12.3%', '0.01%')
    """
    if decimals is not None:
        return f"{100 * fraction:.{decimals}f}%"
    if 0 < fraction < 1e-4:
        return "< 0.01%"
    if 0.9995 <= fraction < 1:
        return "> 99.9%"
    return f"{100 * fraction:.3g}%"


def format_bytes(size: int) -> str:
    """Return a number of bytes with three digits and a binary unit.

    Example:
        >>> format_bytes(0), format_bytes(700), format_bytes(12 << 20), format_bytes(6_160_000_000)
        ('0', '0.684 KiB', '12.0 MiB', '5.74 GiB')
    """
    if size == 0:
        return "0"
    value, unit = size / 1024, 0
    while value >= 512 and unit + 1 < len(_BYTE_UNITS):
        value, unit = value / 1024, unit + 1
    decimals = max(0, 2 - math.floor(math.log10(max(value, 0.1))))
    return f"{value:,.{min(decimals, 3)}f} {_BYTE_UNITS[unit]}"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever is most readable.

    Example:
        >>> format_duration(51.2), format_duration(200), format_duration(9000)
        ('51.2 s', '3.3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
