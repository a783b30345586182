"""The coordinator of transactions: which producer owns a transactional id, and how its transactions begin and end."""
