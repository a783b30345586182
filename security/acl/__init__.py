"""Access control lists: bindings, filters, their index, and the decisions of Kafka's StandardAuthorizer."""
