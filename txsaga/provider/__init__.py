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
    from txsaga.provider.enclosing import enclose as enclose
    from txsaga.provider.flow_dag import message_flow as message_flow
    from txsaga.provider.hook import TxSagaHook as TxSagaHook
    from txsaga.provider.info import get_provider_info as get_provider_info
    from txsaga.provider.notification import MessageNotifier as MessageNotifier
    from txsaga.provider.operators.begin import FlowBegin as FlowBegin
    from txsaga.provider.operators.consume import ConsumeStep as ConsumeStep
    from txsaga.provider.operators.doubt import ListParked as ListParked
    from txsaga.provider.operators.doubt import SettleParked as SettleParked
    from txsaga.provider.operators.end import FlowEnd as FlowEnd
    from txsaga.provider.operators.flow_task import FlowOperator as FlowOperator
    from txsaga.provider.operators.gate import GateStep as GateStep
    from txsaga.provider.operators.half import HalfMessageCommit as HalfMessageCommit
    from txsaga.provider.operators.half import HalfMessagePrepare as HalfMessagePrepare
    from txsaga.provider.operators.half import HalfMessageRollback as HalfMessageRollback
    from txsaga.provider.operators.http import HttpStep as HttpStep
    from txsaga.provider.operators.lane import LaneCommit as LaneCommit
    from txsaga.provider.operators.lane import LaneRollback as LaneRollback
    from txsaga.provider.operators.lane import lane as lane
    from txsaga.provider.operators.local_transaction import LocalTransaction as LocalTransaction
    from txsaga.provider.operators.publish import ClusterPublish as ClusterPublish
    from txsaga.provider.operators.publish import Publish as Publish
    from txsaga.provider.operators.python import CallStep as CallStep
    from txsaga.provider.operators.python import PythonStep as PythonStep
    from txsaga.provider.operators.replay import Replay as Replay
    from txsaga.provider.operators.roles import CollectStaged as CollectStaged
    from txsaga.provider.operators.roles import EngineRoles as EngineRoles
    from txsaga.provider.operators.spark import SparkStep as SparkStep
    from txsaga.provider.operators.sql import SqlStep as SqlStep
    from txsaga.provider.operators.step import StepOperator as StepOperator
    from txsaga.provider.operators.votes import Approval as Approval
    from txsaga.provider.operators.votes import BallotVote as BallotVote
    from txsaga.provider.resources import local as local
    from txsaga.provider.resources import main as main
    from txsaga.provider.sensors.transactions import CheckBackSensor as CheckBackSensor
    from txsaga.provider.sensors.transactions import DecisionSensor as DecisionSensor
    from txsaga.provider.sensors.transactions import MessagesSensor as MessagesSensor
    from txsaga.provider.sensors.transactions import ParkedSensor as ParkedSensor
    from txsaga.provider.steps import approve as approve
    from txsaga.provider.steps import catch as catch
    from txsaga.provider.steps import publish as publish
    from txsaga.provider.steps import step as step
    from txsaga.provider.steps import vote as vote
    from txsaga.provider.tx_step import tx_step as tx_step

_MODULES = {
    "Approval": "operators.votes",
    "BallotVote": "operators.votes",
    "CallStep": "operators.python",
    "CheckBackSensor": "sensors.transactions",
    "ClusterPublish": "operators.publish",
    "CollectStaged": "operators.roles",
    "ConsumeStep": "operators.consume",
    "DecisionSensor": "sensors.transactions",
    "EngineRoles": "operators.roles",
    "FlowBegin": "operators.begin",
    "FlowEnd": "operators.end",
    "FlowOperator": "operators.flow_task",
    "GateStep": "operators.gate",
    "HalfMessageCommit": "operators.half",
    "HalfMessagePrepare": "operators.half",
    "HalfMessageRollback": "operators.half",
    "HttpStep": "operators.http",
    "LaneCommit": "operators.lane",
    "LaneRollback": "operators.lane",
    "ListParked": "operators.doubt",
    "LocalTransaction": "operators.local_transaction",
    "MessageNotifier": "notification",
    "MessagesSensor": "sensors.transactions",
    "ParkedSensor": "sensors.transactions",
    "Publish": "operators.publish",
    "PythonStep": "operators.python",
    "Replay": "operators.replay",
    "SettleParked": "operators.doubt",
    "SparkStep": "operators.spark",
    "SqlStep": "operators.sql",
    "StepOperator": "operators.step",
    "TxSagaHook": "hook",
    "approve": "steps",
    "catch": "steps",
    "enclose": "enclosing",
    "get_provider_info": "info",
    "lane": "operators.lane",
    "local": "resources",
    "main": "resources",
    "message_flow": "flow_dag",
    "messages_asset": "assets",
    "publish": "steps",
    "step": "steps",
    "tx_step": "tx_step",
    "vote": "steps",
}
"""Each public name and its module."""

__all__ = sorted(_MODULES)  # one list, not two


def __getattr__(name: str) -> Any:
    """Load a public name on first access."""
    if name not in _MODULES:
        raise AttributeError(f"module 'txsaga.provider' has no attribute {name!r}")
    return getattr(import_module(f"txsaga.provider.{_MODULES[name]}"), name)
