"""The replicas of this broker: their logs, fetchers and in-sync sets, and how changes of the metadata are applied to
them.
"""
