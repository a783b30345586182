"""The client's side of a SASL login with a user name and a password, which are in a JAAS login context."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from moldau.security.sasl.jaas import LoginModule
from moldau.security.sasl.mechanism import ClientMechanism

PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that log in with a user name and a password."""


def password_login(
    mechanism: str, module: LoginModule, entropy: Callable[[int], bytes]
) -> Callable[[], ClientMechanism]:
    """Return a function that makes the client's side of a new SASL exchange, with the user name and password of the
    login module. `mechanism` is one of `PASSWORD_MECHANISMS`. Raises `JaasError` if an option of the module is
    missing."""
    user, password = module.option("username"), module.option("password")
    if mechanism == "PLAIN":
        from moldau.security.sasl.plain import PlainClient

        return partial(PlainClient, user, password)
    from moldau.security.sasl.scram.credential import SCRAM_MECHANISMS
    from moldau.security.sasl.scram.exchange import TOKEN_EXTENSION, ScramClient, ScramLogin

    is_token = module.options.get(TOKEN_EXTENSION, "").lower() == "true"
    extensions = f",{TOKEN_EXTENSION}=true" if is_token else ""
    return partial(ScramClient, ScramLogin(SCRAM_MECHANISMS[mechanism], user, password), entropy, extensions)
