"""The same work by forebay and by the loaders a user would pick instead. `run.py` is the entry; see
../README.md."""
