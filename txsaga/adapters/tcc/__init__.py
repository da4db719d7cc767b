"""
Functions and services as participants: a try that reserves, then a confirm or a cancel until it answers.

They vote by their try. They must not decide anything, and never confirm what no decision named. If a process dies
between two lines here, the reservation in the home database says what was tried, with which arguments.
"""

from txsaga.adapters.tcc.callables import Callables
from txsaga.adapters.tcc.http import HttpService
from txsaga.adapters.tcc.participant import TccParticipant
from txsaga.adapters.tcc.signature import Called, verify

__all__ = ["Callables", "Called", "HttpService", "TccParticipant", "verify"]
