"""Messages in Avro: schemas from a file or a registry, records as columns."""
