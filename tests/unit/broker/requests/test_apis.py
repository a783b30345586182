"""The table of APIs against the declarations, the handlers and what clients must see."""

from __future__ import annotations

import importlib

import pytest

from broker.network.listener_role import ListenerRole
from broker.requests.apis import API_VERSIONS, APIS, PRODUCE, Api, route, routes
from protocol.schema import spec_of


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_has_its_declaration_and_its_handler(api: Api) -> None:
    messages = importlib.import_module(f"protocol.messages.{api.module}")
    for kind in ("Request", "Response"):
        spec = spec_of(getattr(messages, api.name + kind))
        assert spec.key == api.key
        assert spec.versions.first <= api.first <= api.last <= spec.versions.last
    for role in (ListenerRole.BROKER, ListenerRole.CONTROLLER):
        if api.role & role:
            assert callable(importlib.import_module(f"broker.requests.handlers.{api.handler_at(role)}").handle)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_headers_are_flexible_in_the_versions_in_which_bodies_are(api: Api) -> None:
    made = route(api, ListenerRole.BROKER if api.role & ListenerRole.BROKER else ListenerRole.CONTROLLER, None)
    request = getattr(importlib.import_module(f"protocol.messages.{api.module}"), f"{api.name}Request")
    for version in range(api.first, api.last + 1):
        made.load(version)
        assert (version >= made.flexible_from) == (version in spec_of(request).flexible)


def test_keys_are_unique() -> None:
    assert len({api.key for api in APIS}) == len(APIS)


def test_what_is_not_served_is_not_loaded() -> None:
    produce = route(next(api for api in APIS if api.key == PRODUCE), ListenerRole.BROKER, None)
    assert produce.load(2) is None
    assert produce.load(14) is None
    assert produce.load(3) is not None


def test_both_kinds_of_listener_tell_their_versions() -> None:
    assert API_VERSIONS in routes(ListenerRole.BROKER, None)
    assert API_VERSIONS in routes(ListenerRole.CONTROLLER, None)
    assert PRODUCE not in routes(ListenerRole.CONTROLLER, None)
