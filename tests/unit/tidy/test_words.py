"""Prose is plain technical English: a named subject, the field's terms (`docs/glossary.md`), no riddles.

The phrases, and what to say instead, are in `phrases.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tidy.phrases import Finding, in_document, in_module, in_names, names_in, wheres
from tests.unit.tidy.sources import product, sources, text_of, tracked

COMPUTED = {Path("docs") / f"{name}.md" for name in ("configuration", "divergence", "metrics", "protocol-support")}
"""What these pages say stands in modules, where it is counted."""


def documents() -> list[Path]:
    return [path for path in tracked("*.md") if path not in COMPUTED and "tests" not in path.parts]


def found_in(path: Path) -> list[Finding]:
    if path.suffix == ".md":
        return in_document(text_of(path))
    named = [Finding(1, path.stem, "the field's term")] if names_in(path.stem) else []
    return named + in_module(text_of(path)) + in_names(text_of(path))


def test_no_phrase_is_banned() -> None:
    found = {path: each for path in (*product(), *documents()) if (each := found_in(path))}
    for path, each in found.items():
        print(path)
        print("".join(f"  {finding}\n" for finding in each), end="")
    assert not found, "banned phrases; docs/glossary.md has the terms"


WHERE_MAX = 126
"""How often docstrings and comments may say "where", which names a place: a condition is an "if", a "when" or a "for
which". The number falls and does not rise; those that are left name places."""
WHERE_SLACK = 10


def test_conditions_are_no_places() -> None:
    counts = {path: wheres(text_of(path)) for path in sources()}
    total = sum(counts.values())
    most = sorted(counts, key=counts.__getitem__)[-20:]
    assert total <= WHERE_MAX, f"{total} times, most often in {[*map(str, most)]}: say if, when, for which"
    assert total >= WHERE_MAX - WHERE_SLACK, f"lower WHERE_MAX to {total}"


@pytest.mark.parametrize(
    ("prose", "words"),
    [
        ("Who leads the partition.", ["Who"]),
        ("The requests of clients that wait are answered; nobody\nis disconnected.", ["nobody"]),
        ("Recovered beside the loop.", ["beside the loop"]),
        ("So many bytes leave at once. This is so much.", ["So many"]),
        ("None where it is absent; the file where it is.", ["None where"]),
        ("An address is no port. There is no port.", ["is no port"]),
        ("It is no longer there; is no more than 5.", []),
        ("Requests are answered in the order of arrival, whose bytes are views.", []),
    ],
)
def test_a_phrase_is_found_where_it_stands(prose: str, words: list[str]) -> None:
    assert [finding.words for finding in in_document(prose)] == words


def test_docstrings_comments_and_messages_are_read() -> None:
    text = (
        '"""Whoever calls."""\n'
        "x = 1  # nobody\n"
        "# waits for\n"
        "# ever\n"
        "def f():\n"
        '    log.info("%s is gone, who leads now?", x)\n'
        '    raise ValueError(f"{x}: somebody else has it")\n'
        '    return "who"\n'
    )
    assert [(each.line, each.words) for each in in_module(text)] == [
        (1, "Whoever"),
        (2, "nobody"),
        (3, "for ever"),
        (6, "who"),
        (7, "somebody"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '"""So many bytes."""',
        'raise ValueError("it waits for "\n    f"ever, {x} times")',
        "# waits for\n#   ever",
        'log("one.\\nNobody else has it")',
        "x = 'half of ' 'ours alone'",
    ],
)
def test_a_phrase_is_found_over_the_ends_of_lines_and_literals(text: str) -> None:
    assert len(in_module(text)) == 1


def test_names_are_read_word_by_word() -> None:
    text = "class ReplicaNews:\n    def awakes(self, wakes): self._last_life = 1\n"
    assert {each.words for each in in_names(text)} == {"ReplicaNews", "wakes", "_last_life"}


def test_blocks_of_code_are_not_prose() -> None:
    assert not in_document("Text.\n```\nwho\n```\nMore text.\n")
    assert [each.line for each in in_document("Text.\n```\nwho\n```\nNobody.\n\nNobody.\n")] == [5, 7]
