"""A report as lines of text, with bars and column charts of block characters, or of # if these cannot be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.spark_jobs.jobs.moments import shown_moment, shown_span
from moldau.spark_jobs.jobs.report_figures import KeyFigures, Report, TimeBuckets, TopicFigures, shown_key

EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
LYING: Final = " ▏▎▍▌▋▊▉█"
CHART_HEIGHT: Final = 4
BAR_WIDTH: Final = 24
KEY_WIDTH: Final = 32
ROWS_MAX: Final = 20
"""The most partitions or groups of a topic that the text shows, the largest ones. JSON and HTML have all."""
UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Blocks:
    """Draws bars and charts, with block characters or in ASCII."""

    is_ascii: bool = False

    def bar(self, part: float, width: int = BAR_WIDTH) -> str:
        """A bar that fills a part (0 to 1) of the width."""
        if self.is_ascii:
            return ("#" * round(part * width)).ljust(width)
        eighths = round(part * width * 8)
        text = "█" * (eighths // 8) + (LYING[eighths % 8] if eighths % 8 else "")
        return text.ljust(width)

    def columns(self, values: Sequence[float], height: int = CHART_HEIGHT) -> list[str]:
        """A chart with a column for each value, from its top line to its bottom line."""
        largest = max(values, default=0) or 1
        heights = [round(value / largest * height * 8) if not value else max(1, round(value / largest * height * 8))
                   for value in values]  # fmt: skip
        lines = []
        for line in reversed(range(height)):
            cells = [min(8, max(0, each - 8 * line)) for each in heights]
            lines.append("".join("#" if self.is_ascii and cell else EIGHTHS[cell] for cell in cells))
        return lines


def shown_size(size: float) -> str:
    """A number of bytes as text, in a unit that leaves at most three digits before the point."""
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1:
        size /= 1000
        unit += 1
    return f"{size:.0f} {UNITS[unit]}" if unit == 0 or size >= 99.95 else f"{size:.1f} {UNITS[unit]}"


def shown_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def text_lines(report: Report, *, is_ascii: bool = False) -> Iterator[str]:
    blocks = Blocks(is_ascii)
    if len(report.topics) > 1:
        yield from overview_lines(report, blocks)
    for topic in report.topics:
        yield from topic_lines(topic, report.buckets, blocks)
    for remark in report.remarks:
        yield f"note: {remark}"


def overview_lines(report: Report, blocks: Blocks) -> Iterator[str]:
    """The lines of the overview: one for each topic, the largest first."""
    largest = max(each.bytes for each in report.topics) or 1
    rows = [["topic", "partitions", "records", "size", "", "skew", "lag"]]
    for each in sorted(report.topics, key=lambda topic: (-topic.bytes, topic.topic)):
        lag = f"{max(group.records for group in each.groups):,}" if each.groups else "-"
        rows.append(
            [
                each.topic,
                str(len(each.partitions)),
                f"{each.records:,}",
                shown_size(each.bytes),
                blocks.bar(each.bytes / largest),
                f"{each.bytes_skew:.2f}",
                lag,
            ]
        )
    yield from table(rows, left={0, 4})
    yield ""


def topic_lines(topic: TopicFigures, buckets: TimeBuckets | None, blocks: Blocks) -> Iterator[str]:
    yield f"{topic.topic}: {summary_of(topic)}"
    if topic.first_s is not None and topic.last_s is not None:
        yield f"  timestamps from {shown_moment(topic.first_s * 1000)} to {shown_moment(topic.last_s * 1000)} UTC"
    yield ""
    if buckets is not None and any(each.records for each in topic.buckets):
        yield from rate_lines(topic, buckets, blocks)
    yield from partition_lines(topic, blocks)
    if topic.keys is not None:
        yield from key_lines(topic.keys, topic.records, blocks)
    if topic.groups:
        yield from group_lines(topic, blocks)


def summary_of(topic: TopicFigures) -> str:
    """The partitions, records, sizes and codecs of a topic in one line."""
    parts = [f"{len(topic.partitions)} partitions", f"{topic.records:,} records", shown_size(topic.bytes)]
    if topic.records:
        parts.append(f"{topic.bytes / topic.records:,.0f} B a record")
    if topic.batches:
        parts.append(f"{topic.records / topic.batches:,.1f} records a batch")
    parts += [f"{name} {size * 100 / max(topic.bytes, 1):.3g} %" for name, size in largest_first(topic.codecs)]
    remote = sum(each.remote_bytes for each in topic.partitions)
    if remote:
        local = sum(each.local_bytes for each in topic.partitions)
        parts.append(f"segments: local {shown_size(local)}, remote {shown_size(remote)}")
    if topic.aborted:
        parts.append(f"{topic.aborted:,} records of aborted transactions")
    return ", ".join(parts)


def largest_first(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda each: (-each[1], each[0]))


def rate_lines(topic: TopicFigures, buckets: TimeBuckets, blocks: Blocks) -> Iterator[str]:
    """The lines of two charts: records a second and bytes a second."""
    width = buckets.width_s
    rates = [each.records / width for each in topic.buckets]
    sizes = [each.bytes / width for each in topic.buckets]
    start, end = buckets.start_s, buckets.start_s + buckets.count * width
    for what, values, shown in (
        ("records/s", rates, shown_rate(max(rates))),
        ("bytes/s", sizes, shown_size(max(sizes)) + "/s"),
    ):
        chart = blocks.columns(values)
        label = f"{shown} "
        for number, line in enumerate(chart):
            yield f"  {(label if number == 0 else '').rjust(14)}|{line}|{' ' + what if number == 0 else ''}".rstrip()
    yield f"  {'':14} {shown_moment(start * 1000)} to {shown_moment(end * 1000)}, {shown_span(width)} a column"
    if topic.outside:
        yield f"  {'':14} {topic.outside:,} records have a timestamp outside of these times, or none"
    yield ""


def partition_lines(topic: TopicFigures, blocks: Blocks) -> Iterator[str]:
    largest = max((each.bytes for each in topic.partitions), default=0) or 1
    rows = [["partition", "offsets", "records", "size", "", "share"]]
    shown = sorted(topic.partitions, key=lambda each: (-each.bytes, each.partition))[:ROWS_MAX]
    for each in sorted(shown, key=lambda one: one.partition):
        rows.append(
            [
                str(each.partition),
                f"{each.log_start_offset:,} to {each.high_watermark:,}",
                f"{each.records:,}",
                shown_size(each.bytes),
                blocks.bar(each.bytes / largest),
                f"{each.bytes * 100 / max(topic.bytes, 1):.1f} %",
            ]
        )
    yield from table(rows, left={4}, indent=2)
    if len(topic.partitions) > ROWS_MAX:
        yield f"  {len(topic.partitions) - ROWS_MAX} smaller partitions are not shown"
    skews = f"{topic.bytes_skew:.2f} by bytes, {topic.records_skew:.2f} by records"
    yield f"  skew, the largest partition over the mean: {skews}"
    yield ""


def key_lines(keys: KeyFigures, records: int, blocks: Blocks) -> Iterator[str]:
    rows = [["hot key", "records", "", "share"]]
    largest = max((each.records for each in keys.hot), default=0) or 1
    for each in keys.hot:
        count = f"{each.records:,}" if each.records == each.records_max else f"{each.records:,} to {each.records_max:,}"
        share = f"{each.records * 100 / max(records, 1):.1f} %"
        rows.append([shortened(shown_key(each.key), KEY_WIDTH), count, blocks.bar(each.records / largest), share])
    if keys.hot:
        yield from table(rows, left={0, 2}, indent=2)
    distinct = (
        f"{keys.distinct:,} distinct keys" if not keys.missed_max else f"at least {keys.distinct:,} distinct keys"
    )
    yield f"  {distinct}, {keys.without_key:,} records without a key; {exactness_of(keys)}"
    yield ""


def exactness_of(keys: KeyFigures) -> str:
    if not keys.missed_max:
        return "the counts are exact"
    return f"counts are approximate: a key that is not shown may have up to {keys.missed_max:,} uncounted records"


def group_lines(topic: TopicFigures, blocks: Blocks) -> Iterator[str]:
    largest = max(each.records for each in topic.groups) or 1
    rows = [["group", "lag", "", "largest lag", "last commit (UTC)"]]
    for each in topic.groups[:ROWS_MAX]:
        partition, lag = max(each.partitions.items(), key=lambda pair: pair[1])
        rows.append(
            [
                each.group,
                f"{each.records:,}",
                blocks.bar(each.records / largest),
                f"{lag:,} (partition {partition})",
                shown_moment(each.committed_ms) if each.committed_ms is not None else "-",
            ]
        )
    yield from table(rows, left={0, 2}, indent=2)
    if len(topic.groups) > ROWS_MAX:
        yield f"  {len(topic.groups) - ROWS_MAX} groups with smaller lags are not shown"
    yield ""


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def table(rows: Sequence[Sequence[str]], *, left: set[int], indent: int = 0) -> Iterator[str]:
    """Rows as lines with aligned columns. The columns `left` are aligned at their left edges."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (" " * indent + "  ".join(cells)).rstrip()
