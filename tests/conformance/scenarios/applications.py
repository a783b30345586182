"""Scenarios of whole applications on three nodes: Kafka Streams and Kafka Connect, exactly once through kill -9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.conformance.connect import campaign as connect_campaign
from tests.conformance.outcome import Unavailable
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.streams import campaign as streams_campaign
from tests.conformance.streams.campaign import CLASSIC, STREAMS
from tests.conformance.toolchain import Missing

SEED: Final = 1
STREAMS_KILLS: Final = {"moldau": 20, "apache": 4}
"""By side: of Apache Kafka's only whether it does the same."""
CONNECT_KILLS: Final = 4


def application(run: Callable[[Workshop, str], None], side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        try:
            run(work, side)
        except Missing as missing:
            raise Unavailable(str(missing)) from None

    return story


def streams(work: Workshop, side: str, protocol: str = CLASSIC) -> None:
    shop = streams_campaign.Shop.plain(side, work.toolchain, work.ports, work.directory, protocol=protocol)
    figures = streams_campaign.campaign(shop, STREAMS_KILLS[side], SEED, lambda line: None)
    work.facts["outputs that equal the truth"] = sorted(figures.records)


def streams_group(work: Workshop, side: str) -> None:
    streams(work, side, STREAMS)


def connect(work: Workshop, side: str) -> None:
    copying = connect_campaign.Copying.plain(side, work.toolchain, work.ports, work.directory)
    work.facts["lines, each once and in order"] = connect_campaign.campaign(copying, CONNECT_KILLS, lambda line: None)


STREAMS_DEMANDS: Final = "exactly_once_v2: joins, windows, aggregates equal the truth; instances and brokers are killed"
STREAMS_GROUP_DEMANDS: Final = "the same with group.protocol=streams (KIP-1071)"
CONNECT_DEMANDS: Final = "exactly-once file source and a file sink: each line once, in order; workers are killed"
APPLICATION_SCENARIOS: Final = tuple(
    DirectoryScenario(name, demands, application(run, side), side)
    for name, demands, run in (
        ("streams-exactly-once", STREAMS_DEMANDS, streams),
        ("streams-group-exactly-once", STREAMS_GROUP_DEMANDS, streams_group),
        ("connect-exactly-once", CONNECT_DEMANDS, connect),
    )
    for side in ("moldau", "apache")
)
