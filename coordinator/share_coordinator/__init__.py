"""The share coordinator: the delivery state of share groups, by group, topic and partition (KIP-932)."""
