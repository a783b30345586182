"""Computes the pages of docs/ that follow from the code: `python docs/compute.py` writes them, a test compares them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("broker", "protocol", "storage", "replication", "kraft", "coordinator", "spark_jobs")

sys.path.insert(0, str(ROOT))


def divergences() -> list[tuple[str, str]]:
    """(where, why) for each `DIVERGES:` in the product, the comment or docstring read to its end."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = path.read_text().splitlines()
            for number, line in enumerate(lines):
                if "DIVERGES:" in line:
                    found.append((str(path.relative_to(ROOT)), _reason(lines[number:])))
    return found


def _reason(lines: list[str]) -> str:
    words = [lines[0].partition("DIVERGES:")[2]]
    is_comment = lines[0].lstrip().startswith("#")
    for line in lines[1:]:
        text = line.strip()
        if '"""' in words[-1] or not text or (is_comment and not text.startswith("#")):
            break
        words.append(text.lstrip("# "))
    return re.sub(r'\s+|"""', " ", " ".join(words)).strip()


def divergence_page() -> str:
    rows = [f"| `{where}` | {why} |" for where, why in divergences()]
    return "\n".join(
        [
            "# Where we differ from Apache Kafka 4.3.1 on purpose",
            "",
            "Computed from the `DIVERGES:` marks in the code by `python docs/compute.py`.",
            "",
            "| where | what, and why |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def protocol_page() -> str:
    from broker.apis import APIS, Role

    names = {Role.BROKER: "broker", Role.CONTROLLER: "controller", Role.BOTH: "broker, controller"}
    rows = [
        f"| {api.key} | {api.name} | {api.first}-{api.last} | {names[api.role]} |"
        + (" yes |" if api.is_advertised else " no |")
        for api in APIS
    ]
    return "\n".join(
        [
            "# What we speak",
            "",
            "Computed from `broker/apis.py` by `python docs/compute.py`. What is not in this table is not advertised,",
            "and a request for it closes the connection, as in Apache Kafka. What is served and not advertised is so",
            "there as well, as long as nothing receives the metrics of clients.",
            "",
            "| key | API | versions | listener | advertised |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {"divergence.md": divergence_page, "protocol-support.md": protocol_page}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())


if __name__ == "__main__":
    main()
