"""Where the time of a micro-batch goes, and that of the first one, from the command on."""
