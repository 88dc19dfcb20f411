"""For whom a connection from one node to another speaks.

What a gateway hands on is the client's, and so are the rights and the quotas that count. A node that opens a connection
for a client logs in as itself and then introduces the client, in an envelope (KIP-590) that holds no request: principal
and address. Whoever may do what nodes do (CLUSTER_ACTION) is believed. From then on the connection has the client's
principal and host, for everything that a gateway hands on and for nothing else. Where there is nobody to tell apart,
nothing is said: brokers that know no introduction serve such a gateway too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.forwarding import pack_address, pack_principal, read_address, read_principal
from ottla.broker.gateway.routing import ROUTES
from ottla.broker.reply import CloseConnection
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.model import ANONYMOUS
from ottla.wire.apis import API_VERSIONS
from ottla.wire.message import Message
from ottla.wire.messages.envelope_request import EnvelopeRequest
from ottla.wire.messages.envelope_response import EnvelopeResponse

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.context import Context
    from ottla.config.node import NodeConfig

SASL_HANDSHAKE, SASL_AUTHENTICATE, ENVELOPE = 17, 36, 58
_BORROWED = ROUTES.keys() | {API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, ENVELOPE}


def introduction(config: NodeConfig, connection: ClientConnection) -> EnvelopeRequest | None:
    """What is said of the client of `connection`; none where all are nobody, and nobody asks."""
    protocol = config.security_protocols[config.inter_broker_listener_name]
    if connection.principal == ANONYMOUS and not config.has_authorizer and protocol == "PLAINTEXT":
        return None
    return EnvelopeRequest(
        request_principal=pack_principal(connection.principal),
        client_host_address=pack_address(connection.host),
    )


def borrow(context: Context, request: Message) -> EnvelopeResponse:
    """The other side speaks for the client that it introduces, from now on."""
    assert isinstance(request, EnvelopeRequest)
    if request.request_data:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)  # Controllers open those.
    if not context.may_cluster(Operation.CLUSTER_ACTION):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        principal, host = read_principal(request.request_principal), read_address(request.client_host_address)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    connection = context.connection
    connection.principal, connection.borrowed_host = principal, host
    return EnvelopeResponse()


def check_borrowed(api_key: int) -> None:
    """Raises `CloseConnection` for what no gateway hands on: nobody gets a token, say, in another's name."""
    if api_key not in _BORROWED:
        raise CloseConnection(f"API {api_key} is not for a connection that speaks for somebody")
