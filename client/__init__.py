"""Part of dledger."""
