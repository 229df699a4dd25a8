"""Numbers as people read them."""

import pytest

from shortlist.formatting import format_bytes, format_count, format_duration, format_number, format_percent


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0%"),
        (1, "100%"),
        (0.00009, "< 0.01%"),
        (0.0001, "0.01%"),
        (0.12345, "12.3%"),
        (0.9994, "99.9%"),
        (0.9996, "> 99.9%"),
    ],
)
def test_a_percentage_is_0_or_100_only_if_it_is(fraction, text):
    assert format_percent(fraction) == text


def test_a_percentage_can_have_fixed_decimals():
    assert format_percent(0.99999, decimals=1) == "100.0%"
    assert format_percent(0.005, decimals=0) == "0%"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.00005, "< 0.0001"), (1.256, "1.26"), (99.96, "100"), (12345.6, "12,346")]
)
def test_a_number_has_three_digits_and_no_exponent(value, text):
    assert format_number(value) == text


def test_a_count_agrees_with_its_noun():
    assert [format_count(count, "row") for count in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert format_count(2, "category", "categories") == "2 categories"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1, "0.001 KiB"),
        (1024, "1.00 KiB"),
        (512 * 1024, "0.500 MiB"),
        (100 << 20, "100 MiB"),
        (5 << 40, "5.00 TiB"),
        (1 << 60, "1,048,576 TiB"),
    ],
)
def test_bytes_have_a_unit_that_keeps_three_digits(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.0123, "0.0123 s"), (99, "99 s"), (120, "2.0 min"), (7200, "2.0 h")]
)
def test_a_duration_has_the_unit_that_fits(seconds, text):
    assert format_duration(seconds) == text
