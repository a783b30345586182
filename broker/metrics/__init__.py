"""Metrics in Prometheus' text format, and the health and readiness of a node, over HTTP."""
