"""True of every spelling of a number: the scanner reads it as the general way does."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.service.scanning import agree


@pytest.mark.parametrize("times", range(1, 6))
@pytest.mark.parametrize("places", range(21))
def test_digits_that_are_nothing_in_64_bits_are_no_zero(times, places):
    digits = str(times * 2**64)
    for text in (
        f"{digits[: 20 - places]}.{digits[20 - places :]}",
        f"-{digits}e-{places}",
        f"0.{digits}{places * '0'}1",
    ):
        if text[0] != "." and text[-1] != ".":
            assert agree(b'{"features":[[%s,0,"A5"]]}' % text.encode())


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(("r", ".17g", ".9g", ".3f", ".25e")))
def test_numbers_are_read_as_they_are_generally(value, spelled):
    text = repr(value) if spelled == "r" else format(value, spelled)
    assume(abs(value) < 3.4e38)
    agree(b'{"features":[[%s,0,"A5"]]}' % text.encode())
