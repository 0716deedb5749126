from tests.billing import test_generations_plan as m
from tests.billing.test_generations_plan import listing
from billing.models import Generation
from dataclasses import replace
import pytest
pytestmark = pytest.mark.django_db
def test_show(listing):
    for since in (None, Generation.objects.filter(key_id=listing.key_id).order_by("created_at")[5].created_at):
        l=replace(listing, since=since)
        for p in m.positions(l):
            print(str(m.select(l,p).query)[-400:]); print(m.select(l,p).explain(), sum(1 for _ in m._steps(l,p)))
