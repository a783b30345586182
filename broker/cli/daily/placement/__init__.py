"""What `moldau reassign` and `moldau elect` do: replicas and leaders of partitions."""
