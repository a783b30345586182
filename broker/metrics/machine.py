"""The metrics and the health of all broker processes of a machine, at the HTTP listener of the first process
(`--cores`).

GET /metrics           the series of one node, with the values of all processes added up (or the largest, smallest)
GET /metrics/brokers   the series of each process, with its node id in the label `broker`
GET /readyz            200 if each process is ready
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from moldau.broker.config.listeners import LocalAddress
from moldau.broker.http.local import LocalResponse, NoAnswer, get_response
from moldau.broker.metrics.catalogue import metrics
from moldau.broker.metrics.exposition import number
from moldau.broker.runtime.place import MachineProcesses

PATIENCE_S: Final = 5.0
PROCESS_UP_METRIC: Final = "moldau_core_up"
FOLDS: Final[Mapping[str, Callable[[float, float], float]]] = {"sum": operator.add, "max": max, "min": min}


class Processes:
    """Requests metrics and readiness from the other broker processes of this machine, for the first process."""

    def __init__(self, node_id: int, place: MachineProcesses) -> None:
        self._node_id = node_id
        self._addresses = {
            each: LocalAddress(place.socket_of(each)) for each in place.node_ids if not place.is_first(each)
        }

    async def pages(self, own: str) -> dict[int, str | None]:
        """The metrics pages of all processes of the machine, by node id; None for a process that does not answer. `own`
        is the page of this process.
        """
        answers = await self._ask("/metrics")
        pages: dict[int, str | None] = {self._node_id: own}
        for node_id, answer in answers.items():
            is_page = isinstance(answer, LocalResponse) and answer.status == 200
            pages[node_id] = answer.body.decode() if is_page and isinstance(answer, LocalResponse) else None
        return pages

    async def not_ready(self) -> list[str]:
        """The reasons why other processes of the machine do not serve clients, as one line each."""
        lines = []
        for node_id, answer in (await self._ask("/readyz")).items():
            if isinstance(answer, NoAnswer):
                lines.append(f"node {node_id}: {answer}")
            elif answer.status != 200:
                lines += [f"node {node_id}: {line}" for line in answer.body.decode().splitlines()]
        return lines

    async def _ask(self, target: str) -> dict[int, LocalResponse | NoAnswer]:
        async def answer(address: LocalAddress) -> LocalResponse | NoAnswer:
            try:
                return await get_response(address, target, PATIENCE_S)
            except NoAnswer as problem:
                return problem

        answers = await asyncio.gather(*map(answer, self._addresses.values()))
        return dict(zip(self._addresses, answers, strict=True))


def sum_pages(pages: Mapping[int, str | None]) -> str:
    """Merge the pages of several processes into one page with the series of a single node. Each value is the sum, the
    largest or the smallest of the processes' values (`Metric.fold`). Blocks for milliseconds.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in metrics()}
    for page in pages.values():
        for name, series, value in samples(page or ""):
            of_metric = found[name]
            fold = FOLDS[metrics()[name].fold]
            of_metric[series] = fold(of_metric[series], value) if series in of_metric else value
    return text_of(
        pages, {name: [f"{it} {number(value)}" for it, value in each.items()] for name, each in found.items()}
    )


def label_by_broker(pages: Mapping[int, str | None]) -> str:
    """Merge the pages of several processes into one page on which each series has the label `broker` with the node id
    of its process. Blocks for milliseconds.
    """
    found: dict[str, list[str]] = {name: [] for name in metrics()}
    for node_id, page in pages.items():
        for name, series, value in samples(page or ""):
            bare, brace, labels = series.partition("{")
            labelled = f'{bare}{{broker="{node_id}"{"," + labels if brace else "}"}'
            found[name].append(f"{labelled} {number(value)}")
    return text_of(pages, found)


def samples(page: str) -> Iterator[tuple[str, str, float]]:
    """The samples on a page: metric name, series with labels, value. Metrics that are not in the catalogue of this
    version are left out: the package may have been upgraded before one of the processes was started again.
    """
    known, name = metrics(), ""
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            name = line.split(" ", 3)[2]
        elif name in known and line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            yield name, series, float(value)


def text_of(pages: Mapping[int, str | None], lines: dict[str, list[str]]) -> str:
    """A page with the given lines of each metric, and with samples that say which processes have answered."""
    lines[PROCESS_UP_METRIC] = [
        f'{PROCESS_UP_METRIC}{{broker="{node_id}"}} {int(page is not None)}' for node_id, page in sorted(pages.items())
    ]
    out = []
    for name, metric in metrics().items():
        out.append(f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind}")
        out += lines[name]
    return "\n".join(out) + "\n"
