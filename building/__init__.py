"""Makes the sources faster or installable: the compiled hot path, the wheels. It is no part of a wheel itself."""
