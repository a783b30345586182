"""Logins as Java's settings name them: the classes of the mechanisms, and a client's properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = {"PLAIN": PLAIN, **dict.fromkeys(SCRAMS, SCRAM), "OAUTHBEARER": OAUTH}


def login(mechanism: str, user: str, password: str, *options: str) -> str:
    """The value of `sasl.jaas.config` for a login with a password."""
    words = (f'username="{user}"', f'password="{password}"', *options)
    return f"{MECHANISMS[mechanism]} required {' '.join(words)};"


def client_settings(security: Mapping[str, str]) -> dict[str, str]:
    """The properties of a client that logs in so: `security` is what the programs of single logins are given."""
    settings = {
        "security.protocol": security["protocol"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": security["ca"],
    }
    if "certificate" in security:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": security["certificate"]}
    mechanism = security.get("mechanism")
    if mechanism is not None:
        settings["sasl.mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        settings["sasl.jaas.config"] = f'{OAUTH} required unsecuredLoginStringClaim_sub="bearer";'
    elif mechanism is not None:
        options = ('tokenauth="true"',) if security.get("token") else ()
        settings["sasl.jaas.config"] = login(mechanism, security["user"], security["password"], *options)
    return settings


def scram_words(user: str, password: str) -> list[str]:
    """The words of `format` that give the user a credential of each size."""
    given = [f"{mechanism}=[name={user},password={password}]" for mechanism in SCRAMS]
    return [word for each in given for word in ("--add-scram", each)]


def lines(settings: Mapping[str, str]) -> str:
    """The text of a properties file."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())
