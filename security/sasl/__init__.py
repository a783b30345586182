"""SASL mechanisms, each a state machine that answers the client's messages one after the other."""
