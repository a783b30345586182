"""The computed pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.compute import ALERTS, PAGES
from moldau.broker.metrics.catalogue import metrics

NAME = re.compile(r"\b(?:kafka|moldau|process)_\w+")


@pytest.mark.parametrize("name", PAGES)
def test_a_computed_page_is_up_to_date(name: str) -> None:
    assert (Path("docs") / name).read_text() == PAGES[name](), "run python docs/compute.py"


def test_an_alert_is_on_metrics_that_exist() -> None:
    for alert in ALERTS:
        named = set(NAME.findall(alert.expression))
        assert named and named <= metrics().keys(), alert.expression


def test_an_alert_leads_to_a_section_that_exists() -> None:
    places = [place for alert in ALERTS for place in re.findall(r"\]\(([\w.#-]+)\)", alert.remedy)]
    assert places
    for page, _, section in (place.partition("#") for place in places):
        headings = re.findall(r"^#+ (.*)$", (Path("docs") / page).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not section or section in slugs, (page, section)
