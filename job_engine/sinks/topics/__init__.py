"""Topics of Kafka as sinks: tasks encode messages, the driver sends them in one transaction."""
