"""Results of the engine as tables: matches, outputs, discarded records, the ledger."""
