"""What users can set about time: presets, their text, policies per input."""
