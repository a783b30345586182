"""The numbers of the pages are those of the code: a number with a unit is a constant that is looked up, or is listed
as a figure that was measured, an example, or a format of Apache Kafka.

docs/limits.md and docs/configuration.md have tests of their own; docs/performance.md and the README show results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.broker.config.catalogue import broker_catalogue

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (
    "architecture.md",
    "cluster.md",
    "glossary.md",
    "lake.md",
    "latency.md",
    "migration.md",
    "reliability.md",
    "spark.md",
    "start.md",
    "tiered_storage.md",
)
UNITS = {
    "ms": 1_000_000,
    "s": 10**9,
    "seconds": 10**9,
    "minutes": 60 * 10**9,
    "hours": 3600 * 10**9,
    "bytes": 1,
    "KB": 1000,
    "MB": 10**6,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
"""In bytes, or in nanoseconds."""
NUMBER = re.compile(rf"(?<![\w.-])(\d[\d,.]*) ({'|'.join(UNITS)})\b")


class Stated(NamedTuple):
    """A number of a page: the text with the number, and the constant, whose unit is that of its name."""

    page: str
    text: str
    constant: str
    unit: str


AHEAD = "tables.origins.tiered_segments"
STATED = (
    Stated(
        "architecture.md", "an index entry every 4 KiB", "storage.log_config.LogConfig.index_interval_bytes", "bytes"
    ),
    Stated("architecture.md", "sends 32 KiB and more", "broker.network.replies.SLICE_SIZE_MIN", "bytes"),
    Stated("cluster.md", "finds no controller for 3 s", "broker.metadata.registration.SHUTDOWN_LEADERLESS_MS", "ms"),
    Stated("glossary.md", "a header of 61 bytes", "protocol.record_batch.HEADER_SIZE", "bytes"),
    Stated("glossary.md", "every 4 KiB of batches", "storage.log_config.LogConfig.index_interval_bytes", "bytes"),
    Stated("latency.md", "up to 256 KiB of encrypted bytes", "broker.network.tls.stream.ENCRYPTED_SIZE_MAX", "bytes"),
    Stated("latency.md", "where it was 50 ms or more", "broker.runtime.loop_steps.LOGGED_NS_MIN", "ns"),
    Stated("reliability.md", "within 60 s of a kill", "tests.chaos.transaction_campaign.COMMIT_PATIENCE_S", "s"),
    Stated("reliability.md", "has not committed 25 s", "tests.chaos.transaction_campaign.REPLACED_AFTER_S", "s"),
    Stated("reliability.md", "in full service within 60 s", "tests.simulation.cluster.swarm.LIVENESS_S", "s"),
    Stated("reliability.md", "stopped after 150 s", "tests.simulation.cluster.campaign.SHORT_S_MAX", "s"),
    Stated("reliability.md", "200 s for a seed of the swarm", "tests.simulation.cluster.campaign.LONG_S_MAX", "s"),
    Stated("spark.md", "reads ahead, 32 MiB at most", f"{AHEAD}.REQUEST_SIZE * {AHEAD}.REQUESTS_AHEAD", "bytes"),
    Stated("lake.md", "every 30 seconds", "broker.cli.follow_table.INTERVAL_S", "s"),
    Stated("lake.md", "32 MiB of rows", "lake.data_files.BUFFER_SIZE", "bytes"),
    Stated("lake.md", "about 64 MiB of segments", "broker.cli.follow_table.ROUND_SIZE", "MiB"),
    Stated("lake.md", "at most 64 MiB of rows", "lake.upsert.FILE_SIZE_MAX", "bytes"),
    Stated("lake.md", "below 8 MiB", "lake.compaction.SMALL_SIZE", "bytes"),
    Stated("spark.md", "a task has 64 MiB of files", "tables.planning.planner.TASK_SIZE", "bytes"),
    Stated("spark.md", "each has at least 4 MiB", "tables.planning.planner.TASK_SIZE_MIN", "bytes"),
    Stated("spark.md", "the stored batches of 16 MiB of a segment", "tables.views.latest.SLICE_SIZE", "bytes"),
    Stated(
        "spark.md", "not committed within 15 minutes", "spark_jobs.options.write_options.TRANSACTION_TIMEOUT_MS", "ms"
    ),
    Stated("spark.md", "`kafka.batch.size` (256 KiB)", "spark_jobs.options.write_options.BATCH_SIZE", "bytes"),
    Stated("tiered_storage.md", "entries of 8 bytes", "storage.segment.sparse_index.OFFSET_ENTRY.size", "bytes"),
    Stated("tiered_storage.md", "entries of 12 bytes", "storage.segment.sparse_index.TIME_ENTRY.size", "bytes"),
    Stated("tiered_storage.md", "entries of 34 bytes", "storage.segment.transaction_index.ENTRY.size", "bytes"),
    Stated("tiered_storage.md", "bytes.per.pass` (1 GiB)", "moldau.tiered.compaction.bytes.per.pass", "bytes"),
    Stated("tiered_storage.md", "more than 4 MiB", "storage.tiered.pins.PIN_SIZE_MAX", "bytes"),
    Stated("tiered_storage.md", "checks the storage again every 30 s", "broker.tiering.opening.RECHECK_S", "s"),
)
MEASURED = {
    "cluster.md": (
        "healthy within 14 s",
        "14 s, 28 MB each",
        "acknowledgement was 0.54 s",
        "with 1.0 and 8.4 s",
        "Moldau is 57 MB of the image",
    ),
    "latency.md": ("waits below 8 ms", "in steps of 4 ms", "known to 2 ms"),
    "migration.md": (
        "an acknowledgement 1.2 s",
        "an acknowledgement 9.0 s",
        "an acknowledgement 8.2 s",
        "the longest time 1.7 s",
    ),
    "reliability.md": (
        "a stop takes at most 10 s",
        "A seed takes 0.1 s",
        "the transaction timeout and 10 s",
        "8 to 80 ms apart",
        "executor threads of up to 2 s",
    ),
    "spark.md": ("27 to 80 bytes for each key",),
    "tiered_storage.md": ("text of 16 bytes",),
}
"""Numbers that are no constants: measured, of an example, of a format or of the kernel."""


def constant_of(name: str) -> float:
    """The value of a module's constant, of a field of one, of a product of such, or of a setting by default."""
    if " * " in name:
        first, _, second = name.partition(" * ")
        return constant_of(first) * constant_of(second)
    setting = broker_catalogue().get(name)
    value: object = None if setting is None else int(setting.default_text or "")
    parts = name.split(".") if name.startswith("tests.") else ["moldau", *name.split(".")]
    for count in range(len(parts) - 1, 0, -1) if value is None else ():
        try:
            value = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            fields = getattr(value, "__dataclass_fields__", {})
            value = fields[part].default if part in fields else getattr(value, part)
        break
    assert isinstance(value, int | float), f"there is no {name}"
    return value


def smallest(number: str, unit: str) -> float:
    """In bytes, or in nanoseconds."""
    return float(number.replace(",", "")) * (UNITS | {"ns": 1})[unit]


def lines_of(page: str) -> Iterator[str]:
    """The prose and the tables of a page: no blocks of code, and no rows of a table of runs."""
    in_block = False
    for line in (DOCS / page).read_text("utf-8").splitlines():
        in_block ^= line.startswith("```")
        if not in_block and not re.match(r"```| {4,}\S|\| 20\d\d-", line):
            yield line


def unknown_numbers(page: str, lines: Iterator[str] | list[str]) -> list[str]:
    """The numbers with a unit in these lines that are in no stated and in no measured text."""
    known = [each.text for each in STATED if each.page == page]
    unknown: list[str] = []
    for line in lines:
        texts = (*known, *MEASURED.get(page, ()))
        places = [match.span() for text in texts for match in re.finditer(re.escape(text), line)]
        unknown += [
            f"{page}: {match[0]} in {line[max(0, match.start() - 40) : match.end() + 20]!r}"
            for match in NUMBER.finditer(line)
            if not any(start <= match.start() and match.end() <= end for start, end in places)
        ]
    return unknown


@pytest.mark.parametrize("stated", STATED, ids=lambda each: f"{each.page}: {each.text}")
def test_a_stated_number_is_the_constant(stated: Stated) -> None:
    found = NUMBER.findall(stated.text)
    assert len(found) == 1
    assert stated.text in (DOCS / stated.page).read_text("utf-8"), "the page says something else"
    assert smallest(*found[0]) == constant_of(stated.constant) * (UNITS | {"ns": 1})[stated.unit]


@pytest.mark.parametrize("page", PAGES)
def test_each_number_with_a_unit_is_looked_up_or_known_as_measured(page: str) -> None:
    assert not unknown_numbers(page, lines_of(page)), "add a row to STATED, or the text to MEASURED"


def test_a_planted_number_is_seen() -> None:
    planted = ["an index entry every 8 KiB, and a wait of 7 seconds", "where it was 50 ms or more"]
    assert len(unknown_numbers("architecture.md", planted)) == 3
    assert len(unknown_numbers("latency.md", planted)) == 2


@pytest.mark.parametrize("page", sorted(MEASURED))
def test_a_text_that_is_exempt_is_there(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert all(each in text for each in MEASURED[page])
