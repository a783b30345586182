"""Erasure (decision 36): the rewriting of the segments with records of an erase order, and the receipts."""
