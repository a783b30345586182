"""The rows of the metrics catalogue for client quotas (`catalogue.py`)."""

from __future__ import annotations

QUOTA_ROWS = """
kafka_server_produce_byte_rate  gauge  user,client_id
    kafka.server:type=Produce,name=byte-rate
    Bytes a second of Produce requests of the clients that share a quota, over the windows of the quota.
kafka_server_produce_throttle_time  gauge  user,client_id
    kafka.server:type=Produce,name=throttle-time
    Mean time in ms for which these clients were throttled, of the last minute.
kafka_server_fetch_byte_rate  gauge  user,client_id
    kafka.server:type=Fetch,name=byte-rate
    Bytes a second of Fetch responses to the clients that share a quota, over the windows of the quota.
kafka_server_fetch_throttle_time  gauge  user,client_id
    kafka.server:type=Fetch,name=throttle-time
    Mean time in ms for which these clients were throttled, of the last minute.
kafka_server_request_request_time  gauge  user,client_id
    kafka.server:type=Request,name=request-time
    Time of request handlers for the clients that share a quota, in percent of one thread, over the windows.
kafka_server_request_throttle_time  gauge  user,client_id
    kafka.server:type=Request,name=throttle-time
    Mean time in ms for which these clients were throttled, of the last minute.
kafka_server_controllermutation_tokens  gauge  user,client_id
    kafka.server:type=ControllerMutation,name=tokens
    Partitions that such clients may create or delete at once, negative for debts; told by the active controller.
kafka_server_socket_server_metrics_connection_accept_rate  gauge  ip
    kafka.server:type=socket-server-metrics,name=connection-accept-rate
    Connections a second from an address that has a quota, over the windows of the quota.
kafka_server_socket_server_metrics_ip_connection_accept_throttle_time  gauge  listener
    kafka.server:type=socket-server-metrics,name=ip-connection-accept-throttle-time
    Mean time in ms after which connections above that quota were closed, of the last minute.
moldau_throttled_connections_total  counter  listener
    -
    Connections that were closed without an answer, because their address made them too fast.
"""
