"""Moldau, a Kafka-compatible broker: the package under which a wheel installs every other one of this repository."""

__version__ = "0.1.0"
