"""The call store: replies by the hash of their question, the ledger of payments, and their maintenance."""
