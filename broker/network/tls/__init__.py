"""TLS: key stores and trust stores, contexts that are renewed when files change, and the TLS stream of one
connection.
"""
