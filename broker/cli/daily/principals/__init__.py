"""What `moldau user` and `moldau quota` do."""
