"""One module a subject. Each has `register(console)`, which gives its pages their addresses."""
