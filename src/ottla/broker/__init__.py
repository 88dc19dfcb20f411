"""The server: listeners, connections, dispatch, one file an API, and the drivers of the pure machines below."""
