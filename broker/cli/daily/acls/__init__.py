"""Permissions: listed, added, removed and explained."""
