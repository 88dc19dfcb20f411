"""Who may ask for delegation tokens at all: somebody with a name of his own, who did not come by a token himself."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.model import ANONYMOUS


def may_ask_for_tokens(context: Context) -> bool:
    """Of what a broker handed on, the broker has made sure."""
    if context.host:
        return True
    protocol = context.services.config.security_protocols[context.listener]
    named = protocol != "PLAINTEXT" and (protocol != "SSL" or context.principal != ANONYMOUS)
    return named and not context.connection.by_token
