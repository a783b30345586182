"""Translates the environment variables of other container images of Apache Kafka into those of apache/kafka's image.
Variables that Kubernetes sets for its services are dropped.

    bitnami/kafka                 KAFKA_CFG_NUM_PARTITIONS            KAFKA_NUM_PARTITIONS
    bitnami/kafka                 KAFKA_KRAFT_CLUSTER_ID              CLUSTER_ID
    cp-kafka, apache/kafka        KAFKA_SSL_KEYSTORE_FILENAME         KAFKA_SSL_KEYSTORE_LOCATION, in /etc/kafka/secrets
    cp-kafka, apache/kafka        KAFKA_SSL_KEYSTORE_CREDENTIALS      KAFKA_SSL_KEYSTORE_PASSWORD, the text of that file

docs/containers.md has the table for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from moldau.protocol.late_tuple import NamedTuple

PREFIX: Final = "KAFKA_"
BITNAMI_PREFIX: Final = "KAFKA_CFG_"
SECRETS_DIRECTORY: Final = "/etc/kafka/secrets"
RENAMED_VARIABLES: Final = {"KAFKA_KRAFT_CLUSTER_ID": "CLUSTER_ID"}
"""Variables of other images that have another name in apache/kafka's image, but the same value."""
FILE_NAMES: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "KAFKA_SSL_KEYSTORE_LOCATION",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "KAFKA_SSL_TRUSTSTORE_LOCATION",
}
"""Variables whose value is the name of a file in `SECRETS_DIRECTORY`, with the variables that get the path of that
file.
"""
FILES_WITH_PASSWORDS: Final = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "KAFKA_SSL_KEYSTORE_PASSWORD",
    "KAFKA_SSL_KEY_CREDENTIALS": "KAFKA_SSL_KEY_PASSWORD",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "KAFKA_SSL_TRUSTSTORE_PASSWORD",
}
"""Variables whose value is the name of a file in `SECRETS_DIRECTORY` that contains a password, with the variables
that get the password.
"""
WITHOUT_EFFECT: Final = (
    r"ALLOW_(PLAINTEXT_LISTENER|ANONYMOUS_LOGIN)|BITNAMI_\w+|CONFLUENT_\w+|KAFKA_CONFLUENT_\w+|KAFKA_ENABLE_KRAFT"
    r"|KAFKA_(CLIENT|INTER_BROKER|CONTROLLER)_(USERS?|PASSWORDS?)"
)
"""Matches variables of other images that have no equivalent here. docs/security.md says how users are created."""
_SERVICE: Final = r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
_SERVICE_PORT: Final = r"KAFKA_(\w+_)?PORT"
_SERVICE_URL: Final = r"(tcp|udp|sctp)://.*"


class Translation(NamedTuple):
    """The environment variables under their names in apache/kafka's image. `warning` names the variables that were
    translated or have no effect; None if there are none.
    """

    variables: dict[str, str]
    warning: str | None


def without_services(variables: Mapping[str, str]) -> dict[str, str]:
    """Remove the variables of a Kubernetes service named kafka or kafka-something. Kubernetes sets them in every
    container of the namespace: KAFKA_PORT=tcp://10.0.0.1:9092, KAFKA_SERVICE_HOST and others.
    """
    return {name: value for name, value in variables.items() if not _is_of_service(name, value)}


def _is_of_service(name: str, value: str) -> bool:
    if re.fullmatch(_SERVICE, name):
        return True
    return re.fullmatch(_SERVICE_PORT, name) is not None and re.fullmatch(_SERVICE_URL, value) is not None


def translate_variables(variables: Mapping[str, str], read: Callable[[str], str]) -> Translation:
    """Translate the variables of other images. If a variable with the new name is set already, its value is kept.
    `read` reads a text file; its exceptions are passed on.
    """
    added: dict[str, str] = {}
    words: list[str] = []
    for name, value in variables.items():
        new = _new_name(name)
        if new is not None:
            added[new] = _new_value(name, value, read)
            words.append(f"{name} is {new}")
        elif re.fullmatch(WITHOUT_EFFECT, name):
            words.append(f"{name} has no effect")
    if not words:
        return Translation(dict(variables), None)
    kept = {name: value for name, value in variables.items() if _new_name(name) is None}
    kept = {name: value for name, value in kept.items() if not re.fullmatch(WITHOUT_EFFECT, name)}
    warning = f"Variables of other images of Apache Kafka are taken by the names of this one: {', '.join(words)}."
    return Translation(added | kept, warning)


def _new_name(name: str) -> str | None:
    """The name of a variable in apache/kafka's image; None if it is not a variable of another image."""
    if name.startswith(BITNAMI_PREFIX) and name != BITNAMI_PREFIX:
        return PREFIX + name.removeprefix(BITNAMI_PREFIX)
    return RENAMED_VARIABLES.get(name) or FILE_NAMES.get(name) or FILES_WITH_PASSWORDS.get(name)


def _new_value(name: str, value: str, read: Callable[[str], str]) -> str:
    if name in FILE_NAMES:
        return f"{SECRETS_DIRECTORY}/{value}"
    return read(f"{SECRETS_DIRECTORY}/{value}").strip() if name in FILES_WITH_PASSWORDS else value
