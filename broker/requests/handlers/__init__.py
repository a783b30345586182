"""One module per API: `handle(services, context, request)` answers it.

A module is imported at the first request of its API: an idle node holds none of them.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.requests.handlers import (
        add_offsets_to_txn as add_offsets_to_txn,
    )
    from moldau.broker.requests.handlers import (
        add_partitions_to_txn as add_partitions_to_txn,
    )
    from moldau.broker.requests.handlers import (
        alter_configs as alter_configs,
    )
    from moldau.broker.requests.handlers import (
        alter_replica_log_dirs as alter_replica_log_dirs,
    )
    from moldau.broker.requests.handlers import (
        api_versions as api_versions,
    )
    from moldau.broker.requests.handlers import (
        create_delegation_token as create_delegation_token,
    )
    from moldau.broker.requests.handlers import (
        create_partitions as create_partitions,
    )
    from moldau.broker.requests.handlers import (
        create_topics as create_topics,
    )
    from moldau.broker.requests.handlers import (
        decision as decision,
    )
    from moldau.broker.requests.handlers import (
        delete_groups as delete_groups,
    )
    from moldau.broker.requests.handlers import (
        delete_records as delete_records,
    )
    from moldau.broker.requests.handlers import (
        describe_acls as describe_acls,
    )
    from moldau.broker.requests.handlers import (
        describe_client_quotas as describe_client_quotas,
    )
    from moldau.broker.requests.handlers import (
        describe_cluster as describe_cluster,
    )
    from moldau.broker.requests.handlers import (
        describe_configs as describe_configs,
    )
    from moldau.broker.requests.handlers import (
        describe_delegation_token as describe_delegation_token,
    )
    from moldau.broker.requests.handlers import (
        describe_groups as describe_groups,
    )
    from moldau.broker.requests.handlers import (
        describe_log_dirs as describe_log_dirs,
    )
    from moldau.broker.requests.handlers import (
        describe_producers as describe_producers,
    )
    from moldau.broker.requests.handlers import (
        describe_topic_partitions as describe_topic_partitions,
    )
    from moldau.broker.requests.handlers import (
        describe_transactions as describe_transactions,
    )
    from moldau.broker.requests.handlers import (
        describe_user_scram_credentials as describe_user_scram_credentials,
    )
    from moldau.broker.requests.handlers import (
        end_txn as end_txn,
    )
    from moldau.broker.requests.handlers import (
        envelope as envelope,
    )
    from moldau.broker.requests.handlers import (
        expire_delegation_token as expire_delegation_token,
    )
    from moldau.broker.requests.handlers import (
        fetch as fetch,
    )
    from moldau.broker.requests.handlers import (
        find_coordinator as find_coordinator,
    )
    from moldau.broker.requests.handlers import (
        forwarded as forwarded,
    )
    from moldau.broker.requests.handlers import (
        get_telemetry_subscriptions as get_telemetry_subscriptions,
    )
    from moldau.broker.requests.handlers import (
        heartbeat as heartbeat,
    )
    from moldau.broker.requests.handlers import (
        incremental_alter_configs as incremental_alter_configs,
    )
    from moldau.broker.requests.handlers import (
        init_producer_id as init_producer_id,
    )
    from moldau.broker.requests.handlers import (
        join_group as join_group,
    )
    from moldau.broker.requests.handlers import (
        leave_group as leave_group,
    )
    from moldau.broker.requests.handlers import (
        list_config_resources as list_config_resources,
    )
    from moldau.broker.requests.handlers import (
        list_groups as list_groups,
    )
    from moldau.broker.requests.handlers import (
        list_offsets as list_offsets,
    )
    from moldau.broker.requests.handlers import (
        list_transactions as list_transactions,
    )
    from moldau.broker.requests.handlers import (
        metadata as metadata,
    )
    from moldau.broker.requests.handlers import (
        offset_commit as offset_commit,
    )
    from moldau.broker.requests.handlers import (
        offset_delete as offset_delete,
    )
    from moldau.broker.requests.handlers import (
        offset_fetch as offset_fetch,
    )
    from moldau.broker.requests.handlers import (
        offset_for_leader_epoch as offset_for_leader_epoch,
    )
    from moldau.broker.requests.handlers import (
        produce as produce,
    )
    from moldau.broker.requests.handlers import (
        push_telemetry as push_telemetry,
    )
    from moldau.broker.requests.handlers import (
        quorum as quorum,
    )
    from moldau.broker.requests.handlers import (
        renew_delegation_token as renew_delegation_token,
    )
    from moldau.broker.requests.handlers import (
        sasl_authenticate as sasl_authenticate,
    )
    from moldau.broker.requests.handlers import (
        sasl_handshake as sasl_handshake,
    )
    from moldau.broker.requests.handlers import (
        sync_group as sync_group,
    )
    from moldau.broker.requests.handlers import (
        txn_offset_commit as txn_offset_commit,
    )
    from moldau.broker.requests.handlers import (
        write_txn_markers as write_txn_markers,
    )


def __getattr__(name: str) -> ModuleType:
    """The module of a handler, for `handlers.produce` where it is used first. Raises AttributeError."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as missing:
        if missing.name != f"{__name__}.{name}":
            raise
        raise AttributeError(name) from None
