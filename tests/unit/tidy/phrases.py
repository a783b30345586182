"""The phrases that prose does not use, and what it says instead; and where prose stands in a module or a document."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.unit.tidy.sources import parsed


class Phrase(NamedTuple):
    """What is not written, and what is written for it."""

    pattern: re.Pattern[str]
    instead: str
    lowered: str
    """A pattern that is found in the lowered text at least where `pattern` is, whatever stands in front."""


def _phrase(pattern: str, instead: str) -> Phrase:
    return Phrase(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead, pattern)


def _opening(pattern: str, instead: str) -> Phrase:
    """At the beginning of a sentence only."""
    return Phrase(re.compile(rf"(?:^|[.:!?] )(?:{pattern})\b"), instead, pattern.lower())


PHRASES: Final = (
    # A broker, a client, a task: no person. A sentence names it.
    _phrase("nobody|no one", "the subject: no replica, no client, no caller"),
    _phrase("somebody|someone|somebody's", "the subject: another broker, a client, a metrics endpoint"),
    _phrase(r"anybody|anyone|everybody|(?<!allow\.)everyone", "the subject: any voter, every member"),
    _phrase("whoever|whomever|whosoever", "the subject: the caller, the client that, the broker that"),
    _phrase("who|whom", "which node, the replica that, the requests that"),
    _phrase("of ours|the rest of us", "of this broker"),
    # Words that the field has a term for.
    _phrase("hearsay", "what the observer learned from a peer"),
    _phrase("canvass(?:es|ed|ing)?", "a (pre-)vote round"),
    _phrase("beside the (?:event )?loop", "on an executor thread"),
    _phrase("(?:next |last |one |each |its |this )?turns? of the (?:event )?loop", "an event loop iteration"),
    _phrase("in its turn", "one after the other; in its event loop iteration"),
    _phrase("(?:last|former|earlier|previous) li(?:fe|ves)", "the previous start; a former incarnation (broker epoch)"),
    _phrase(r"falls? silent|fell silent|(?<!\.)silence(?!\.\w)", "sends no heartbeat"),
    _phrase("askers?", "the client, the reader, the follower"),
    _phrase("laggards?", "replicas that lag"),
    _phrase("newcomers?", "new members; appends that arrive during the sync"),
    # Riddles and verse.
    _phrase("vouch(?:es|ed|ing)?", "confirms that it has flushed"),
    _phrase("believ(?:e|es|ed|ing)", "trusts a file, takes as the leader"),
    _phrase("in (?:its|their|his|the) stead|in the stead of", "instead"),
    _phrase("for ever|for good", "permanently; until a restart"),
    _phrase("of now|of before|of late", "current, earlier, recent"),
    _phrase("comes? to be|came to be|has come to", "becomes"),
    _phrase("and the like", "the members of the list"),
    _phrase("let go|lets go", "release"),
    _phrase("gone by", "past"),
    _phrase("hearken|beckon|betimes|whence|(?<!is loading and )hence|thence|lest|ere", "plain words"),
    _phrase(r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|later|earlier|greater)[a-z]+", "is not a"),
    _phrase("did not come to|comes? to nothing|came to nothing", "did not reach, fails"),
    _phrase("so to speak|as it were", "nothing"),
    _phrase("is (?:no )?news", "is (not) a change that the session has not sent"),
    # "Where" names a place.
    _phrase("(?:none|false|true|empty|nothing|effect|only|also|even|at once) where", "if, when, for which"),
    _phrase(r"raises `?\w+`? where", "raises … if"),
    _opening("So (?:many|much|long|often|far)", "The number, the size, the time: what it measures, with its unit"),
)

NAMES: Final = frozenset(
    {
        "hearsay",
        "canvass",
        "canvassing",
        "silence",
        "last_life",
        "replica_news",
        "wakes",
        "askers",
        "newcomers",
        "laggards",
    }
)
"""Words that no identifier and no module's name contains."""

_SETTING: Final = "broker_silence_fence_ms"
"""An identifier may be the name of the setting `moldau.broker.silence.fence.ms`."""

WHERE: Final = re.compile(r"(?i)\bwhere\b")
_WORDS_MIN: Final = 3
"""A string literal of fewer words is a name, a format or a token."""


_ANY: Final = re.compile(rf"\b(?:{'|'.join(each.lowered for each in PHRASES)})\b")
"""For lowered text: a sixth of the time of a pattern that ignores the case."""
_BETWEEN_WORDS: Final = re.compile(r"""(?:\s|\\n|#|(?<!\w)[A-Za-z]{0,2}["']|["'])+""")
"""What may stand between two words of prose: white space, the mark of a comment, the ends of adjacent literals."""


def may_say(text: str) -> bool:
    """Whether a phrase may stand in a module: False for most, which need no closer look."""
    return _ANY.search(_BETWEEN_WORDS.sub(" ", text).lower()) is not None


class Finding(NamedTuple):
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.words!r}: say {self.instead}"


def findings(text: str, line: int = 1) -> Iterator[Finding]:
    """The banned phrases in one piece of prose that begins at a line."""
    flat = re.sub(r"\s", " ", text)  # one for one: positions stay
    for phrase in PHRASES:
        for match in phrase.pattern.finditer(flat):
            at = line + text.count("\n", 0, match.start())
            yield Finding(at, match.group().strip(" .:!?"), phrase.instead)


def in_document(text: str) -> list[Finding]:
    """Of a page in Markdown; blocks of code are left out."""
    prose = re.sub(r"^```.*?^```", lambda code: "\n" * code.group().count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = re.split(r"(\n[ \t]*\n|\n(?=[|#-]))", prose)
    found: list[Finding] = []
    line = 1
    for paragraph in paragraphs:
        found += findings(paragraph, line)
        line += paragraph.count("\n")
    return found


def in_module(text: str) -> list[Finding]:
    """Of a module: docstrings, comments, and every string literal of some words (messages, log lines, descriptions)."""
    found: list[Finding] = []
    if not may_say(text):
        return found
    tree = parsed(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) in docstrings or len(node.value.split()) >= _WORDS_MIN:
            found += findings(re.sub(r"^\s+", "", node.value), node.lineno)
    for first_line, comment in _comments(text):
        found += findings(comment, first_line)
    return sorted(found)


def in_names(text: str) -> list[Finding]:
    """Of the names that a module binds."""
    bound: list[tuple[int, str]] = []
    if not names_in(re.sub(r"\W+", "_", text)):
        return []
    for node in ast.walk(parsed(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            bound.append((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            bound.append((node.lineno, node.attr))
    return [Finding(line, name, "the field's term") for line, name in sorted(bound) if names_in(name)]


def names_in(identifier: str) -> list[str]:
    """The banned words that an identifier contains: `_ReplicaNews` contains `replica_news`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().strip("_")
    words = words.replace(_SETTING, "")
    return sorted(name for name in NAMES if f"_{name}_" in f"_{words}_")


def wheres(text: str) -> int:
    """How often the docstrings and the comments of a module say "where"."""
    if not WHERE.search(text):
        return 0
    docstrings = (
        node.value.value
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    comments = (comment for _, comment in _comments(text))
    return sum(len(WHERE.findall(prose)) for prose in (*docstrings, *comments))


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Each comment with the lines that continue it, and the number of its first line."""
    first_line, last_line, column = 0, 0, -1
    words: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, at = token.start
        if not (words and line == last_line + 1 and at == column):
            if words:
                yield first_line, "\n".join(words)
            first_line, column, words = line, at, []
        words.append(token.string.lstrip("# "))
        last_line = line
    if words:
        yield first_line, "\n".join(words)
