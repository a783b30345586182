"""A password shows nowhere but where it is asked for."""

from __future__ import annotations

import pickle

import pytest

from moldau.broker.config.describing import describe_broker, describe_broker_defaults
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.loading import checked_config
from moldau.broker.config.setting import Password, ValueType
from moldau.broker.config.values import parse_type

SECRET = "correct horse"
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/tmp/nowhere",
    "ssl.keystore.password": SECRET,
    "listener.name.external.plain.sasl.jaas.config": SECRET,
    "sasl.jaas.config": SECRET,
}


def test_blanks_around_it_are_no_part_of_it() -> None:
    """As ConfigDef trims the value of each type."""
    config = checked_config(PROPERTIES | {"ssl.keystore.password": f" {SECRET}\t"})
    assert config.settings.password("ssl.keystore.password") == Password(SECRET)
    assert parse_type("ssl.key.password", ValueType.PASSWORD, f"{SECRET} ") == Password(SECRET)


def test_it_reveals_its_text_and_shows_none_of_it() -> None:
    password = Password(SECRET)
    assert password.reveal() == SECRET
    for shown in (
        repr(password),
        str(password),
        f"{password}",
        f"{password!r}",
        f"{password}",
        repr([password]),
    ):
        assert SECRET not in shown and "[hidden]" in shown


def test_two_of_the_same_text_are_the_same() -> None:
    assert Password("a") == Password("a") != Password("b")
    assert hash(Password("a")) == hash(Password("a"))


def test_it_is_not_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Password(SECRET))


def test_a_configuration_shows_no_password() -> None:
    config = checked_config(PROPERTIES)
    password = config.settings.password("ssl.keystore.password")
    assert password is not None and password.reveal() == SECRET
    assert SECRET not in repr(config) and SECRET not in repr(vars_of(config.settings))
    assert all(SECRET not in warning for warning in config.warnings)


def vars_of(settings: object) -> list[object]:
    return [getattr(settings, name) for name in type(settings).__slots__]  # type: ignore[attr-defined]


def test_describe_configs_shows_no_password_of_any_level() -> None:
    config = checked_config(PROPERTIES)
    dynamic = {"listener.name.external.ssl.keystore.key": SECRET}
    layers = BrokerLayers.from_config(config, {"sasl.jaas.config": SECRET}, dynamic)
    assert SECRET not in repr([*describe_broker(config, layers)])
    assert SECRET not in repr(describe_broker_defaults(layers))
    (described,) = [each for each in describe_broker(config, layers) if each.name == "ssl.keystore.password"]
    assert (described.value, described.is_sensitive) == (None, True)
