"""The replicas of this broker: their logs, their fetchers, the in-sync sets, what metadata asks of them."""
