"""The page has a row for each client and tool of the catalogue, and rows are written as they are read."""

from pathlib import Path

import pytest

from tests.conformance.others.catalogue import OTHERS
from tests.conformance.others.installs import PROGRAMS
from tests.conformance.others.other import Place, Registry, last_words, round_trip
from tests.conformance.others.page import HEADING, PAGE, Row, rows_in, with_rows
from tests.conformance.outcome import Failed

ECHO = 'for n in $(seq 0 $(($4 - 1))); do printf "key-%s\\tvalue %s\\t%s\\n" $n $n {}; done'


def test_the_page_has_one_row_for_each_entry() -> None:
    shown = [(row.name, row.version, row.registry, row.done) for row in rows_in(PAGE.read_text())]
    assert shown == [(each.name, each.version, each.registry.value, each.done) for each in OTHERS]


def test_no_row_works_on_apache_kafka_alone() -> None:
    assert [row for row in rows_in(PAGE.read_text()) if not row.is_equal] == []


def test_each_program_is_there_and_each_is_in_the_catalogue() -> None:
    wanted = {(each.registry.name.lower(), each.program) for each in OTHERS if each.registry is not Registry.DEBIAN}
    there = {(path.parent.name, path.name) for path in PROGRAMS.glob("*/*")}
    assert wanted == there


def test_rows_are_read_as_they_were_written() -> None:
    page = f"before\n\n{HEADING}\n|---|---|---|---|---|---|\n| old | 1 | npm | done | works | works |\n\nafter\n"
    rows = [Row("a", "1.0", "npm", "produces", "works", "Error: no | such\n version"), *rows_in(page)]
    text = with_rows(page, rows)
    assert text.startswith("before\n") and text.endswith("\n\nafter\n")
    assert [row.name for row in rows_in(text)] == ["a", "old"]
    assert rows_in(text)[0].there == "Error: no / such version" and not rows_in(text)[0].is_equal


def test_a_program_that_reads_other_records_has_failed(tmp_path: Path) -> None:
    use = round_trip(creates=True)
    place = Place.fresh("127.0.0.1:1", tmp_path)
    use(["bash", "-c", ECHO.format("$n"), "program"], place)
    with pytest.raises(Failed, match="read 20 records, which are not"):
        use(["bash", "-c", ECHO.format("other"), "program"], place)
    with pytest.raises(Failed, match="Error: refused"):
        use(["bash", "-c", "echo 'Error: refused' >&2; echo 'at line 3' >&2; exit 1", "program"], place)


def test_the_last_words_are_the_last_line_about_an_error(tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    said.write_text("starts\nTypeError: no such\n    at main.js:3 (error.js)\n\nNode.js v20\n")
    assert last_words(said) == "TypeError: no such"
    said.write_text("")
    assert last_words(said) == "it said nothing"
