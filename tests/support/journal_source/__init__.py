"""A kind of source that is not Ensue's: a file of JSON lines to which somebody appends, read by the numbers of lines."""
