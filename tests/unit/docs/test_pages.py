"""The computed pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.compute import ALERTS, PAGES
from moldau.broker.metrics.catalogue import metrics

PROMETHEUS = Path("docs/prometheus")
NAME = re.compile(r"\b(?:kafka|moldau|process)_\w+")


@pytest.mark.parametrize("name", PAGES)
def test_a_computed_page_is_up_to_date(name: str) -> None:
    assert (Path("docs") / name).read_text() == PAGES[name](), "run python docs/compute.py"


def test_an_alert_is_on_metrics_that_exist() -> None:
    for alert in ALERTS:
        named = set(NAME.findall(alert.expression))
        assert named and named <= metrics().keys(), alert.expression


def test_the_rules_for_prometheus_are_yaml_with_every_alert_and_the_configuration_loads_them() -> None:
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    assert [(each["alert"], each["expr"]) for each in group["rules"]] == [
        (each.name, each.expression) for each in ALERTS
    ]
    assert len({each.name for each in ALERTS}) == len(ALERTS)
    assert all(re.fullmatch(r"\d+m", each["for"]) for each in group["rules"])
    assert not any("](" in each["annotations"]["description"] for each in group["rules"]), "a link of Markdown"
    assert yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["rule_files"] == ["alerts.yml"]


def test_an_alert_leads_to_a_section_that_exists() -> None:
    places = [place for alert in ALERTS for place in re.findall(r"\]\(([\w.#-]+)\)", alert.remedy)]
    assert places
    for page, _, section in (place.partition("#") for place in places):
        headings = re.findall(r"^#+ (.*)$", (Path("docs") / page).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not section or section in slugs, (page, section)
