"""Kafka Streams and Kafka Connect that log in by SCRAM under TLS and may do no more than they must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from tests.conformance.connect import campaign as connect_campaign
from tests.conformance.outcome import Unavailable
from tests.conformance.scenarios.applications import SEED
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.secured.access import Access
from tests.conformance.secured.listeners import Between
from tests.conformance.secured.permissions import Permission, grant, topics
from tests.conformance.secured.trio import SecuredTrio
from tests.conformance.streams import campaign as streams_campaign
from tests.conformance.streams.inputs import INPUTS
from tests.conformance.streams.truth import OUTPUTS
from tests.conformance.toolchain import Missing

KILLS: Final = 1
"""Of an instance or a worker: a second one logs in again and goes on."""
CONNECT_SECRET, STREAMS_SECRET = "connect-secret", "shop-secret"
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, DESCRIBE = AclOperation.DELETE, AclOperation.DESCRIBE
DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS
STREAMS, CONNECT = "shop", "connect"
"""Their names as users, and as groups."""
STREAMS_PERMISSIONS: Final = (
    *topics((READ,), *INPUTS),
    *topics((WRITE,), *OUTPUTS),
    *topics((READ, WRITE, CREATE, DELETE, DESCRIBE_CONFIGS), "shop-", is_prefix=True),
    Permission(ResourceType.GROUP, STREAMS, (READ,)),
    Permission(ResourceType.TRANSACTIONAL_ID, "shop-", (WRITE,), is_prefix=True),
)
CONNECT_PERMISSIONS: Final = (
    *topics((READ, WRITE, CREATE, DESCRIBE_CONFIGS), "connect-", is_prefix=True),
    *topics((READ, WRITE), *connect_campaign.TOPIC),
    Permission(ResourceType.GROUP, CONNECT, (READ,)),
    Permission(ResourceType.GROUP, f"connect-{connect_campaign.SINK}", (READ,)),
    # The leader's own, and those of the source's tasks.
    Permission(ResourceType.TRANSACTIONAL_ID, "connect-", (WRITE,), is_prefix=True),
)


def secured(work: Workshop, side: str, user: str, secret: str, settings: tuple[str, ...]) -> tuple[SecuredTrio, Access]:
    brokers = SecuredTrio(
        side, work.toolchain, work.ports, work.directory, Between.PASSWORDS, {user: secret}, extra=settings
    )
    return brokers, Access(brokers.secured_bootstrap, brokers.java_settings_of(user))


class SecuredShop(streams_campaign.Shop):
    def prepare(self) -> None:
        grant(self.brokers.bootstrap, STREAMS, STREAMS_PERMISSIONS)


class SecuredCopying(connect_campaign.Copying):
    def prepare(self) -> None:
        grant(self.brokers.bootstrap, CONNECT, CONNECT_PERMISSIONS)


def streams(work: Workshop, side: str) -> None:
    brokers, access = secured(work, side, STREAMS, STREAMS_SECRET, streams_campaign.SETTINGS)
    shop = SecuredShop(brokers, work.toolchain, work.directory, access=access)
    figures = streams_campaign.campaign(shop, KILLS, SEED, lambda line: None)
    work.facts["outputs that equal the truth"] = sorted(figures.records)
    work.facts["denied"] = [line for line in figures.replaced if "AuthorizationException" in line]


def connect(work: Workshop, side: str) -> None:
    brokers, access = secured(work, side, CONNECT, CONNECT_SECRET, connect_campaign.SETTINGS)
    copying = SecuredCopying(brokers, work.toolchain, work.ports, work.directory, access)
    work.facts["lines, each once and in order"] = connect_campaign.campaign(copying, KILLS, lambda line: None)


def on(run: Callable[[Workshop, str], None], side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        try:
            run(work, side)
        except Missing as missing:
            raise Unavailable(str(missing)) from None

    return story


SECURED_APPLICATION_SCENARIOS: Final = tuple(
    DirectoryScenario(name, f"as {like}, a kill each, with SASL_SSL, SCRAM and the least ACLs", on(run, side), side)
    for name, like, run in (
        ("secured-streams", "streams-exactly-once", streams),
        ("secured-connect", "connect-exactly-once", connect),
    )
    for side in ("moldau", "apache")
)
