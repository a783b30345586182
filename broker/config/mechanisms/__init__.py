"""Settings of single SASL mechanisms."""
