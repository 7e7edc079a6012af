"""Topics of Kafka as sources: the lister plans ranges of offsets, workers read exactly these."""
