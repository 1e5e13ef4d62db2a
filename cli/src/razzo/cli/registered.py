"""Whether the nameserver knows a broker: asked of its registry, on its peer port."""

from __future__ import annotations

import asyncio

from razzo.cli.exits import CommandFailed, Exit

REGISTERED_S_MAX = 30.0
ASK_S_MAX = 2.0
PAUSE_S = 0.02


async def wait_registered(peer_address: str, broker_client_port: int) -> None:
    """Returns when the view of the nameserver at `peer_address` has the broker with this client port.

    CommandFailed when that takes too long.
    """
    import grpc

    from razzo.v1 import registry_pb2, registry_pb2_grpc

    def knows(view: registry_pb2.ClusterView) -> bool:
        return any(broker_client_port in (broker.client_plain.port, broker.client_tls.port) for broker in view.brokers)

    trouble = "it does not know the broker"
    try:
        async with asyncio.timeout(REGISTERED_S_MAX):
            async with grpc.aio.insecure_channel(peer_address, options=[("grpc.enable_http_proxy", 0)]) as channel:
                registry = registry_pb2_grpc.RegistryStub(channel)
                while True:
                    try:
                        if knows(
                            await registry.DescribeCluster(registry_pb2.DescribeClusterRequest(), timeout=ASK_S_MAX)
                        ):
                            return
                        trouble = "it does not know the broker"
                    except grpc.aio.AioRpcError as failed:
                        trouble = f"{failed.code().name}: {failed.details()}"
                    await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        raise CommandFailed(
            Exit.FAULT, f"the broker did not register at the nameserver within {REGISTERED_S_MAX:g} s ({trouble})"
        ) from None
