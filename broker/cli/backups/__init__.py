"""What `moldau backup` and `moldau restore` do."""
