"""Care of a job's files, from outside: beside a job that runs, or while none does."""
