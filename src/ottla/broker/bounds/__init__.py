"""How much of the node one client, connection, request or answer may take: quotas, rates, caps and fixed limits."""
