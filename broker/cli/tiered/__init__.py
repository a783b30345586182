"""What `moldau tier` does: it reads the metadata of a cluster and its remote storage."""
