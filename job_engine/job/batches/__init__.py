"""What a micro-batch leaves: rows for sinks, counts for the ledger, reports and figures."""
