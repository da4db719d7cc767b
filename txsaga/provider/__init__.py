"""
The Airflow provider: flows as DAGs, and operators that also work alone in any DAG.

Importing this loads neither Airflow nor a driver: a name is loaded on first access. Nothing else in the package imports
the provider.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txsaga.provider.assets import messages_asset as messages_asset
    from txsaga.provider.connections import TxSagaHook as TxSagaHook
    from txsaga.provider.flow_dag import enclose as enclose
    from txsaga.provider.flow_dag import message_flow as message_flow
    from txsaga.provider.info import get_provider_info as get_provider_info
    from txsaga.provider.operators.call import CallStep as CallStep
    from txsaga.provider.operators.call import HttpStep as HttpStep
    from txsaga.provider.operators.call import PythonStep as PythonStep
    from txsaga.provider.operators.call import tx_step as tx_step
    from txsaga.provider.operators.flow import FlowBegin as FlowBegin
    from txsaga.provider.operators.flow import FlowEnd as FlowEnd
    from txsaga.provider.operators.flow import LaneCommit as LaneCommit
    from txsaga.provider.operators.flow import LaneRollback as LaneRollback
    from txsaga.provider.operators.flow import lane as lane
    from txsaga.provider.operators.maintenance import CollectStaged as CollectStaged
    from txsaga.provider.operators.maintenance import EngineRoles as EngineRoles
    from txsaga.provider.operators.maintenance import ListParked as ListParked
    from txsaga.provider.operators.maintenance import Replay as Replay
    from txsaga.provider.operators.maintenance import SettleParked as SettleParked
    from txsaga.provider.operators.messages import ClusterPublish as ClusterPublish
    from txsaga.provider.operators.messages import ConsumeStep as ConsumeStep
    from txsaga.provider.operators.messages import HalfMessageCommit as HalfMessageCommit
    from txsaga.provider.operators.messages import HalfMessagePrepare as HalfMessagePrepare
    from txsaga.provider.operators.messages import HalfMessageRollback as HalfMessageRollback
    from txsaga.provider.operators.messages import MessageNotifier as MessageNotifier
    from txsaga.provider.operators.messages import Publish as Publish
    from txsaga.provider.operators.spark import SparkStep as SparkStep
    from txsaga.provider.operators.sql import LocalTransaction as LocalTransaction
    from txsaga.provider.operators.sql import SqlStep as SqlStep
    from txsaga.provider.operators.task import FlowOperator as FlowOperator
    from txsaga.provider.operators.task import StepOperator as StepOperator
    from txsaga.provider.operators.votes import Approval as Approval
    from txsaga.provider.operators.votes import BallotVote as BallotVote
    from txsaga.provider.operators.votes import GateStep as GateStep
    from txsaga.provider.resources import local as local
    from txsaga.provider.resources import main as main
    from txsaga.provider.sensors import CheckBackSensor as CheckBackSensor
    from txsaga.provider.sensors import DecisionSensor as DecisionSensor
    from txsaga.provider.sensors import MessagesSensor as MessagesSensor
    from txsaga.provider.sensors import ParkedSensor as ParkedSensor
    from txsaga.provider.steps import approve as approve
    from txsaga.provider.steps import catch as catch
    from txsaga.provider.steps import publish as publish
    from txsaga.provider.steps import step as step
    from txsaga.provider.steps import vote as vote

_NAMES = {
    "assets": "messages_asset",
    "connections": "TxSagaHook",
    "flow_dag": "enclose message_flow",
    "info": "get_provider_info",
    "operators.call": "CallStep HttpStep PythonStep tx_step",
    "operators.flow": "FlowBegin FlowEnd LaneCommit LaneRollback lane",
    "operators.maintenance": "CollectStaged EngineRoles ListParked Replay SettleParked",
    "operators.messages": "ClusterPublish ConsumeStep HalfMessageCommit HalfMessagePrepare HalfMessageRollback "
    "MessageNotifier Publish",
    "operators.spark": "SparkStep",
    "operators.sql": "LocalTransaction SqlStep",
    "operators.task": "FlowOperator StepOperator",
    "operators.votes": "Approval BallotVote GateStep",
    "resources": "local main",
    "sensors": "CheckBackSensor DecisionSensor MessagesSensor ParkedSensor",
    "steps": "approve catch publish step vote",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)  # one list, not two


def __getattr__(name: str) -> Any:
    """Load a public name on first access."""
    if name not in _MODULES:
        raise AttributeError(f"module 'txsaga.provider' has no attribute {name!r}")
    return getattr(import_module(f"txsaga.provider.{_MODULES[name]}"), name)
