"""What `moldau erase` does: the search, the orders, the receipts, the check of a receipt."""
