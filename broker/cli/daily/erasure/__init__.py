"""The actions of `moldau erase`: the search for records, the erase orders, the receipts, and the check of a receipt."""
