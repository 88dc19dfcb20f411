"""How others get in, and how this node gets in elsewhere: TLS and SASL, listener by listener.

`doors.Doors` is built by the node from its configuration; without a listener that asks for TLS or SASL nothing of this
room is imported. What is proved on a connection ends up in `ClientConnection.principal`.
"""
