"""Metrics in Prometheus' text format, and the health and readiness of the node, over HTTP."""
