"""What a client certificate says about its bearer."""
