"""The actions of `moldau reassign` and `moldau elect`: they move the replicas of partitions, and elect leaders."""
