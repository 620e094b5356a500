"""The same work by forebay and by its alternatives: see ../README.md."""
