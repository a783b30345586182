"""Access control lists: ACL bindings, filters of bindings, the index of all ACLs, and the decisions of Kafka's
StandardAuthorizer.
"""
