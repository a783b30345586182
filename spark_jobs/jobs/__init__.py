"""The jobs of `moldau spark`."""
