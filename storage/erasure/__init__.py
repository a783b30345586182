"""Erasure (decision 36): segments are rewritten without the records that an erase order names, and receipts state what
was erased."""
