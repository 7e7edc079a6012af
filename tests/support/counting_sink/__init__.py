"""A kind of sink that is not Ensue's: it counts rows by place in one file, exactly once."""
