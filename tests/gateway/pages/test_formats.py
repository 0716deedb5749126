from datetime import UTC, datetime

from django.utils.formats import localize


def test_a_time_is_exact_to_the_second_and_names_its_zone() -> None:
    assert localize(datetime(2026, 11, 21, 16, 1, 55, tzinfo=UTC)) == "21 Nov 2026, 16:01:55 UTC"
