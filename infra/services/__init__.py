"""The Prefect server, MLflow UI and Prefect worker of a state folder."""

from infra.services.crashes import process_tag
from infra.services.errors import PortTakenError, ServiceError
from infra.services.programs import WORK_POOL
from infra.services.services import Services, ServiceStatus

__all__ = ["WORK_POOL", "PortTakenError", "ServiceError", "ServiceStatus", "Services", "process_tag"]
