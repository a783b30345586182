"""The settings of the authorizer, and what they may not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.config.config import Config
from security.acl.authorizer import parse_super_users

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def broken_authorizer_rules(config: Config) -> Iterator[str]:
    """The rules that the settings of the authorizer break."""
    name = config.text("authorizer.class.name")
    if name not in ("", STANDARD_AUTHORIZER):
        yield (
            f"authorizer.class.name={name} is refused: {STANDARD_AUTHORIZER} is the authorizer of this broker, and Java"
            " classes are not loaded"
        )
    try:
        parse_super_users(config.text("super.users"))
    except ValueError as error:
        yield f"super.users: {error}"
