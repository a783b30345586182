"""The replicas of this broker: their logs, fetchers and in-sync sets, and the changes that metadata makes to them."""
