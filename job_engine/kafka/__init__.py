"""The client of Kafka: its settings, its errors, and what a broker has, for whoever needs it."""
