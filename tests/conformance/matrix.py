"""The matrix as text: scenarios down, clients across, then every difference and failure in full."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tests.conformance.comparison import Cell, Judgement, Verdict

COLOURS = {
    Verdict.OK: "32",
    Verdict.NOT_APPLICABLE: "90",
    Verdict.KNOWN: "36",
    Verdict.AS_APACHE: "33",
    Verdict.DIFFERS: "35;1",
    Verdict.FAIL: "31;1",
}


def coloured(verdict: Verdict, text: str) -> str:
    return f"\033[{COLOURS[verdict]}m{text}\033[0m" if sys.stdout.isatty() else text


def table(judged: Mapping[Cell, Judgement]) -> str:
    clients = list(dict.fromkeys(client for client, _ in judged))
    scenarios = list(dict.fromkeys(scenario for _, scenario in judged))
    first = max(len(name) for name in scenarios)
    widths = [max(len(name), 9) for name in clients]
    heading = " ".join(name.ljust(width) for name, width in zip(clients, widths, strict=True))
    lines = [f"{'':{first}}  {heading}".rstrip()]
    for scenario in scenarios:
        cells = []
        for client, width in zip(clients, widths, strict=True):
            judgement = judged.get((client, scenario))
            shown = judgement.verdict.value if judgement else ""
            cells.append(coloured(judgement.verdict, shown.ljust(width)) if judgement else shown.ljust(width))
        lines.append(f"{scenario:{first}}  {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def remarks(judged: Mapping[Cell, Judgement]) -> str:
    """Failures and differences one by one, then why cells do not apply, each reason once."""
    lines: list[str] = []
    for (client, scenario), judgement in judged.items():
        if judgement.verdict is Verdict.OK or judgement.verdict is Verdict.NOT_APPLICABLE:
            continue
        lines.append(f"{coloured(judgement.verdict, judgement.verdict.value)} {scenario}, {client}: {judgement.reason}")
        lines += [f"    {difference}" for difference in judgement.differences]
    reasons: dict[tuple[str, str], list[str]] = {}
    for (client, scenario), judgement in judged.items():
        if judgement.verdict is Verdict.NOT_APPLICABLE:
            reasons.setdefault((client, judgement.reason), []).append(scenario)
    lines += [f"n.a. {client}: {reason} ({', '.join(names)})" for (client, reason), names in reasons.items()]
    return "\n".join(lines)
