"""The actions of `moldau tier`: they read the metadata of a cluster and its remote storage."""
