"""What `moldau backup`, `moldau restore` and `moldau capture` do."""
