"""SASL mechanisms, each a machine that answers one client message after the other."""
