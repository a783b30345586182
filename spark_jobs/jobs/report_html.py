"""A report as one HTML page: no script, no other file, nothing to fetch. It follows the reader's light or dark mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from moldau.spark_jobs.jobs.moments import shown_moment, shown_span
from moldau.spark_jobs.jobs.report_figures import (
    KeyFigures,
    PartitionFigures,
    Report,
    TimeBuckets,
    TopicFigures,
    shown_key,
)
from moldau.spark_jobs.jobs.report_text import exactness_of, largest_first, shown_rate, shown_size
from moldau.spark_jobs.jobs.svg_charts import Bar, Column, bar_chart, column_chart

BARS_MAX: Final = 40
"""The most bars of a chart. The table below the chart has all rows."""
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --quiet: #5c6b7a; --paper: #fff; --card: #f5f7f9; --line: #dde3e8;
  --mark: #2f6fab; --track: #e8edf1; --mean: #b4552d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --quiet: #98a5b2; --paper: #14191f; --card: #1c232b;
  --line: #2f3a45; --mark: #6aa9de; --track: #26303a; --mean: #e08a5e; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1080px; padding: 24px 28px 64px; }
h1, h2, p, b, td:first-child { overflow-wrap: anywhere; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 20px; margin: 48px 0 4px; padding-top: 16px;
  border-top: 1px solid var(--line); } h3 { font-size: 15px; margin: 28px 0 6px; }
p { margin: 4px 0; } .quiet { color: var(--quiet); } a { color: var(--mark); }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0; }
.tile { background: var(--card); border-radius: 6px; padding: 10px 14px; flex: 1 1 auto; min-width: 118px;
  max-width: min(100%, 240px); } .tile b { display: block; font-size: 20px; font-weight: 600; }
.tile span { color: var(--quiet); font-size: 13px; }
.wide { overflow-x: auto; } td:first-child { min-width: 12ch; max-width: 48ch; }
svg { display: block; width: 100%; min-width: 520px; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .scale { text-anchor: end; fill: var(--quiet); }
.axis { stroke: var(--quiet); } .grid { stroke: var(--line); } .mark { fill: var(--mark); }
.track { fill: var(--track); }
.whisker { stroke: var(--mark); stroke-width: 2; } .mean { stroke: var(--mean); stroke-width: 1.5;
  stroke-dasharray: 4 3; }
table { border-collapse: collapse; font-size: 13px; margin: 6px 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
td.key { font-family: ui-monospace, monospace; } details { margin: 6px 0; } summary { color: var(--quiet);
  cursor: pointer; font-size: 13px; }
"""


def page_of(report: Report) -> str:
    """A report as an HTML page."""
    return "\n".join(_page_lines(report)) + "\n"


def _page_lines(report: Report) -> Iterator[str]:
    title = report.topics[0].topic if len(report.topics) == 1 else f"{len(report.topics)} topics"
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield f"<title>{escape(title)} - moldau report</title><style>{STYLE}</style></head><body>"
    yield f"<h1>{escape(title)}</h1>"
    if report.cluster_id is not None:
        yield f'<p class="quiet">cluster {escape(report.cluster_id)}, one replica of each partition</p>'
    for remark in report.remarks:
        yield f'<p class="quiet">Note: {escape(remark)}</p>'
    if len(report.topics) > 1:
        yield from _overview(report.topics)
    for number, topic in enumerate(report.topics):
        yield from _topic(number, topic, report.buckets, is_alone=len(report.topics) == 1)
    yield "</body></html>"


def _overview(topics: Sequence[TopicFigures]) -> Iterator[str]:
    rows = []
    for number, each in sorted(enumerate(topics), key=lambda pair: (-pair[1].bytes, pair[1].topic)):
        lag = max((group.records for group in each.groups), default=None)
        rows.append(
            [
                f'<a href="#t{number}">{escape(each.topic)}</a>',
                f"{len(each.partitions)}",
                f"{each.records:,}",
                shown_size(each.bytes),
                f"{each.bytes_skew:.2f}",
                "-" if lag is None else f"{lag:,}",
            ]
        )
    yield _table(["topic", "partitions", "records", "size", "skew", "largest lag"], rows)


def _topic(number: int, topic: TopicFigures, buckets: TimeBuckets | None, *, is_alone: bool) -> Iterator[str]:
    if not is_alone:
        yield f'<h2 id="t{number}">{escape(topic.topic)}</h2>'
    yield _tiles(topic)
    if topic.first_s is not None and topic.last_s is not None:
        yield (
            f'<p class="quiet">Timestamps from {shown_moment(topic.first_s * 1000)} to '
            f"{shown_moment(topic.last_s * 1000)} UTC.</p>"
        )
    if buckets is not None and any(each.records for each in topic.buckets):
        yield from _rates(topic, buckets)
    yield from _partitions(topic)
    if topic.keys is not None:
        yield from _keys(topic.keys, topic.records)
    if topic.groups:
        yield from _groups(topic)


def _tiles(topic: TopicFigures) -> str:
    tiles = [("records", f"{topic.records:,}"), ("stored", shown_size(topic.bytes))]
    if topic.records:
        tiles.append(("bytes a record", f"{topic.bytes / topic.records:,.0f}"))
    if topic.batches:
        tiles.append(("records a batch", f"{topic.records / topic.batches:,.1f}"))
    tiles += [("partitions", str(len(topic.partitions))), ("skew by bytes", f"{topic.bytes_skew:.2f}")]
    codecs = [f"{name} {size * 100 / max(topic.bytes, 1):.3g} %" for name, size in largest_first(topic.codecs)]
    tiles += [("compression", codecs[0])] if codecs else []
    remote = sum(each.remote_bytes for each in topic.partitions)
    if remote:
        tiles.append(("remote segments", shown_size(remote)))
    if topic.aborted:
        tiles.append(("records aborted", f"{topic.aborted:,}"))
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _rates(topic: TopicFigures, buckets: TimeBuckets) -> Iterator[str]:
    width = buckets.width_s
    starts = [buckets.start_s + number * width for number in range(buckets.count)]
    end = buckets.start_s + buckets.count * width
    middle = starts[buckets.count // 2]
    labels = [(0.0, shown_moment(starts[0] * 1000)), (1.0, shown_moment(end * 1000))]
    if buckets.count > 2:
        labels.insert(1, ((middle - starts[0]) / (end - starts[0]), shown_moment(middle * 1000)))
    counted = list(zip(starts, topic.buckets, strict=True))
    records = [
        Column(each.records / width, f"{shown_moment(start * 1000)}: {shown_rate(each.records / width)} records/s")
        for start, each in counted
    ]
    sizes = [
        Column(each.bytes / width, f"{shown_moment(start * 1000)}: {shown_size(each.bytes / width)}/s")
        for start, each in counted
    ]
    yield f"<h3>Records a second, {shown_span(width)} a column</h3>"
    yield _wide(column_chart("records a second", records, lambda value: f"{value:,.6g}", labels))
    yield f"<h3>Bytes a second, {shown_span(width)} a column</h3>"
    yield _wide(column_chart("bytes a second", sizes, lambda value: f"{shown_size(value)}/s", labels))
    if topic.outside:
        yield f'<p class="quiet">{topic.outside:,} records have a timestamp outside of these times, or none.</p>'


def _partitions(topic: TopicFigures) -> Iterator[str]:
    largest: list[PartitionFigures] = sorted(topic.partitions, key=lambda each: (-each.bytes, each.partition))
    shown = sorted(largest[:BARS_MAX], key=lambda each: each.partition)
    bars = [
        Bar(
            f"partition {each.partition}",
            each.bytes,
            f"{shown_size(each.bytes)}, {each.bytes * 100 / max(topic.bytes, 1):.1f} %",
            f"partition {each.partition}: {each.records:,} records, {shown_size(each.bytes)}",
        )
        for each in shown
    ]
    yield "<h3>Size of the partitions</h3>"
    yield (
        f'<p class="quiet">The largest partition has {topic.bytes_skew:.2f} times the mean (dashed) by bytes, '
        f"{topic.records_skew:.2f} times by records.</p>"
    )
    yield _wide(bar_chart("size of the partitions", bars, topic.bytes / max(len(topic.partitions), 1)))
    rows = [
        [
            f"{each.partition}",
            f"{each.log_start_offset:,}",
            f"{each.high_watermark:,}",
            f"{each.records:,}",
            f"{each.bytes:,}",
            f"{each.local_segments:,} ({shown_size(each.local_bytes)})",
            f"{each.remote_segments:,} ({shown_size(each.remote_bytes)})",
        ]
        for each in topic.partitions
    ]
    names = ["partition", "log start", "high watermark", "records", "bytes", "local segments", "remote segments"]
    yield f"<details><summary>All partitions</summary>{_table(names, rows)}</details>"


def _keys(keys: KeyFigures, records: int) -> Iterator[str]:
    bars = []
    for each in keys.hot[:BARS_MAX]:
        is_exact = each.records == each.records_max
        count = f"{each.records:,}" if is_exact else f"{each.records:,} to {each.records_max:,}"
        number = f"{count}, {each.records * 100 / max(records, 1):.1f} %"
        name = shown_key(each.key)
        bars.append(Bar(name, each.records, number, f"{name}: {count} records", each.records_max))
    yield "<h3>Keys with the most records</h3>"
    distinct = f"{keys.distinct:,}" if not keys.missed_max else f"At least {keys.distinct:,}"
    yield (
        f'<p class="quiet">{distinct} distinct keys, {keys.without_key:,} records without a key; '
        f"{escape(exactness_of(keys))}.</p>"
    )
    if bars:
        yield _wide(bar_chart("keys with the most records", bars))


def _groups(topic: TopicFigures) -> Iterator[str]:
    bars = [Bar(each.group, each.records, f"{each.records:,}") for each in topic.groups[:BARS_MAX]]
    yield "<h3>Lag of the groups, in records</h3>"
    yield _wide(bar_chart("lag of the groups", bars))
    rows = []
    for each in topic.groups:
        partition, lag = max(each.partitions.items(), key=lambda pair: pair[1])
        committed = "-" if each.committed_ms is None else shown_moment(each.committed_ms)
        largest = f"{lag:,} (partition {partition})"
        rows.append([escape(each.group), f"{each.records:,}", f"{len(each.partitions)}", largest, committed])
    names = ["group", "lag", "partitions", "largest lag", "last commit (UTC)"]
    yield f"<details open><summary>All groups</summary>{_table(names, rows)}</details>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table. Its cells are HTML already."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return _wide(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _wide(part: str) -> str:
    """A part of the page that scrolls sideways in a narrower window, so that the page itself never does."""
    return f'<div class="wide">{part}</div>'
