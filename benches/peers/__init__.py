"""The same work by forebay and by the loaders a user would pick instead: see ../README.md."""
