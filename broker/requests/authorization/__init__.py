"""The authorization rules of the APIs: which permissions a request needs. They run before the handlers on a node with
an authorizer.
"""
