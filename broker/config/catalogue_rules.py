"""The controller's checks of a changed setting against the catalogue, before it is written into the metadata log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from moldau.broker.config.altering import broker_change_refusal
from moldau.broker.config.catalogue import (
    base_name,
    broker_catalogue,
    client_metrics_catalogue,
    group_catalogue,
    topic_catalogue,
)
from moldau.broker.config.config import Config
from moldau.broker.config.describing import ConfigEntry, describe_topic
from moldau.broker.config.group_rules import group_refusal
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.setting import Catalogue, ValueType
from moldau.broker.config.topics import topic_refusal
from moldau.broker.config.values import InvalidValue, linear_matcher, parse
from moldau.kraft.controller.decision import ApiError
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopicConfigs

CLIENT_METRICS_INTERVAL_MS_MIN: Final = 100
CLIENT_METRICS_INTERVAL_MS_MAX: Final = 3_600_000
_CLIENT_PROPERTIES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class SettingsInForce(Protocol):
    """The present settings of the controller's node."""

    @property
    def config(self) -> Config:
        """The current configuration."""

    @property
    def layers(self) -> BrokerLayers:
        """The static and dynamic settings from which the configuration is merged."""

    @property
    def topic_entries(self) -> Sequence[ConfigEntry]:
        """The entries of DescribeConfigs for a topic that has no settings of its own."""


class CatalogueRules:
    """The `ConfigRules` of the controller: they check changes by the catalogue."""

    def __init__(self, in_force: SettingsInForce) -> None:
        self._in_force = in_force

    def refusal(
        self, resource: ConfigResource, settings: Mapping[str, str], existing: Mapping[str, str]
    ) -> ApiError | None:
        """Why the dynamic settings of a resource may not be changed from `existing` to `settings`; None if they may."""
        match resource.type:
            case ResourceType.TOPIC:
                message = topic_refusal(self._in_force.config, dict(settings), existing)
                return None if message is None else ApiError(ErrorCode.INVALID_CONFIG, message)
            case ResourceType.BROKER:
                return self._broker_refusal(resource.name, settings, existing)
            case ResourceType.GROUP:
                message = group_refusal(self._in_force.config.settings, settings)
                return None if message is None else ApiError(ErrorCode.INVALID_CONFIG, message)
            case ResourceType.CLIENT_METRICS:
                return client_metrics_refusal(settings)
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")

    def _broker_refusal(self, name: str, settings: Mapping[str, str], existing: Mapping[str, str]) -> ApiError | None:
        if name and not re.fullmatch(r"[0-9]{1,10}", name):
            return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        layers = self._in_force.layers
        before = (
            BrokerLayers(layers.static, layers.dynamic_default, existing)
            if name
            else BrokerLayers(layers.static, existing, layers.dynamic_broker)
        )
        message = broker_change_refusal(before, settings, at_default_level=not name)
        return None if message is None else ApiError(ErrorCode.INVALID_REQUEST, message)

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether APPEND and SUBTRACT apply to the setting, because it is a list. As in Apache Kafka, they apply to no
        setting of a client metrics subscription.
        """
        if resource_type == ResourceType.CLIENT_METRICS:
            return False
        setting = _catalogue(resource_type).get(_looked_up(resource_type, name))
        return setting is not None and setting.type is ValueType.LIST

    def default_of(self, resource: ConfigResource, name: str) -> str:
        """The value to which APPEND and SUBTRACT apply if the resource does not have the setting itself.

        It is Apache Kafka's default, not the broker's value.
        """
        setting = _catalogue(resource.type).get(_looked_up(resource.type, name))
        return "" if setting is None else setting.default_text or ""

    def describe_topic(self, settings: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        """Describe all settings of a topic for the response to CreateTopics. `settings` are the topic's own
        settings.
        """
        described = describe_topic(self._in_force.topic_entries, settings)
        return [
            CreatableTopicConfigs(
                name=each.name,
                value=each.value,
                read_only=each.is_read_only,
                config_source=each.source,
                is_sensitive=each.is_sensitive,
            )
            for each in described
        ]


def client_metrics_refusal(settings: Mapping[str, str]) -> ApiError | None:
    """Why the settings of a client metrics subscription are refused, with Apache Kafka's message; None if they are
    accepted.
    """
    catalogue = client_metrics_catalogue()
    for name in settings:
        if name not in catalogue:
            return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    for name, text in settings.items():
        try:
            value = parse(catalogue[name], text)
        except InvalidValue as problem:
            return ApiError(ErrorCode.INVALID_CONFIG, str(problem))
        if isinstance(value, int) and not CLIENT_METRICS_INTERVAL_MS_MIN <= value <= CLIENT_METRICS_INTERVAL_MS_MAX:
            return ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {text} for {name}, interval must be between 100 and 3600000 (1 hour)",
            )
        if name == "match" and isinstance(value, tuple):
            for pattern in value:
                if not _is_client_pattern(pattern):
                    return ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    return None


def _is_client_pattern(pattern: str) -> bool:
    name, equals, expression = pattern.partition("=")
    if not equals or not expression or "=" in expression or name.strip() not in _CLIENT_PROPERTIES:
        return False
    # DIVERGES: patterns with look-around or back references are refused, because RE2 matches in linear time.
    return linear_matcher(expression.strip()) is not None


def _catalogue(resource_type: int) -> Catalogue:
    by_type = {
        ResourceType.TOPIC: topic_catalogue,
        ResourceType.BROKER: broker_catalogue,
        ResourceType.GROUP: group_catalogue,
        ResourceType.CLIENT_METRICS: client_metrics_catalogue,
    }
    return by_type[ResourceType(resource_type)]()


def _looked_up(resource_type: int, name: str) -> str:
    return base_name(name) if resource_type == ResourceType.BROKER else name
