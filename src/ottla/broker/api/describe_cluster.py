"""DescribeCluster (key 60): the cluster's id, its controller, and its brokers (or its controllers, KIP-919)."""

from __future__ import annotations

from ottla.broker.access import authorized_operations
from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    services = context.services
    wanted = CONTROLLERS if context.on_controller else BROKERS
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Endpoint type {request.endpoint_type} does not exist.",
            endpoint_type=request.endpoint_type,
        )
    if request.endpoint_type != wanted:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the other type.",
            endpoint_type=request.endpoint_type,
        )
    response = DescribeClusterResponse(cluster_id=services.cluster_id, endpoint_type=wanted)
    if wanted == CONTROLLERS:
        response.controller_id = services.active_controller_id()
        response.brokers = [
            DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, host, port in services.controller_endpoints(context.listener)
        ]
        return response
    response.controller_id = services.any_controller_id()
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations.on_cluster(context)
    for broker in services.image.cluster.brokers.values():
        endpoint = broker.endpoint(context.listener)
        if endpoint is not None and (not broker.fenced or request.include_fenced_brokers):
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    return response
