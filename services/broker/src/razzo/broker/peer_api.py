"""What the peer port offers: administration, health, and MessagingService for calls that another node forwarded."""

from __future__ import annotations

from razzo.broker.admin_api import AdminApi
from razzo.broker.client_api import ClientApi
from razzo.door.methods import MethodTable
from razzo.protocol import methods
from razzo.runtime.health import HealthBoard


def peer_table(clients: ClientApi, admin: AdminApi, health: HealthBoard) -> MethodTable:
    """The method table of the peer port, Telemetry included: a node that fronts a client may hold its stream here."""
    return clients.table().merged(admin.table()).merged(health_table(health))


def health_table(health: HealthBoard) -> MethodTable:
    table = MethodTable()
    table.unary(methods.HEALTH_CHECK, health.check)
    table.server_stream(methods.HEALTH_WATCH, health.watch)
    return table
