"""The formats of consumed records."""

from __future__ import annotations

import csv
import io

import pytest

from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.records.printing import Place, formatter_of
from moldau.protocol.record_builder import Record

RECORD = Place("orders", 2, Record(b"ada", b"rolls", 5, (("a", None),)))
NULLS = Place("orders", 2, Record(None, None, 5))


@pytest.mark.parametrize(
    ("form", "printed", "of_nulls"),
    [
        ("%t/%p %k=%s@%T", b"orders/2 ada=rolls@5", b"orders/2 =@5"),
        ("%K,%S", b"3,5", b"-1,-1"),
        ("%R%s", b"\0\0\0\5rolls", b"\xff\xff\xff\xff"),
        (r"%h%%\n\x41", b"a=NULL%\nA", b"%\nA"),
    ],
)
def test_tokens_are_those_of_kcat(form: str, printed: bytes, of_nulls: bytes) -> None:
    format_record = formatter_of(form)
    assert format_record(RECORD) == printed
    assert format_record(NULLS) == of_nulls


def test_csv_tells_none_from_an_empty_text_and_quotes_as_python_does() -> None:
    show = formatter_of("csv")
    assert show(RECORD) == b"orders,2,-1,5,ada,rolls\n" and show(NULLS) == b"orders,2,-1,5,,\n"
    assert show(Place("orders", 2, Record(b"", None, 5))) == b'orders,2,-1,5,"",\n'
    for value in ('a"b', "a,b", "a\r\nb", '"', " ", "\ufeff"):
        row = next(csv.reader(io.StringIO(show(Place("t", 0, Record(b"k", value.encode(), 5))).decode(), newline="")))
        assert row[-2:] == ["k", value]


@pytest.mark.parametrize("form", ["%H", "%q %s", "%"])
def test_an_unknown_token_is_refused(form: str) -> None:
    with pytest.raises(WrongArguments, match="after % stands one of"):
        formatter_of(form)
