"""Administrators of ACLs, users and delegation tokens in a simulated cluster, and clients that are bound by them."""
