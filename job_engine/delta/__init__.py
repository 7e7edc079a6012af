"""Tables of Delta Lake: their log, what they ask of readers and writers, and commits to them."""
