"""What a node tells about itself, its requests and its clients: metrics, pages over HTTP, traces, log levels."""
