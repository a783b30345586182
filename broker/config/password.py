"""The value of a setting of the type password, which is never printed."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"


class Password:
    """A secret text. Its `repr`, `str` and every format of it are `[hidden]`, so that no log line, dump or traceback
    shows it; `reveal` is the only way to the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret text, for the call that needs it."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Password], tuple[str]]:
        raise TypeError("a password is not pickled")
