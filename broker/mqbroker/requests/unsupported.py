"""Request codes of RocketMQ that this broker knows and does not serve, and why.

A code that is in no table is answered by its number alone. Either way the code is 3
(REQUEST_CODE_NOT_SUPPORTED), and stock tools print the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.refusal import Refused

_POP = "consumers of this broker pull: POP is not supported"
_ACL = "there are no users and access lists here: whoever reaches the port may do everything"
_REPLICAS = "replicas take all state out of the replicated log, and none by requests"

_REASONS: Final[Mapping[int, str]] = {
    RequestCode.SET_MESSAGE_REQUEST_MODE: _POP,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _POP,
    RequestCode.POP_MESSAGE: _POP,
    RequestCode.ACK_MESSAGE: _POP,
    RequestCode.PEEK_MESSAGE: _POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    RequestCode.NOTIFICATION: _POP,
    RequestCode.POLLING_INFO: _POP,
    RequestCode.BATCH_ACK_MESSAGE: _POP,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _ACL,
    RequestCode.DELETE_ACL_CONFIG: _ACL,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _ACL,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _ACL,
    RequestCode.CREATE_USER: _ACL,
    RequestCode.UPDATE_USER: _ACL,
    RequestCode.DELETE_USER: _ACL,
    RequestCode.GET_USER: _ACL,
    RequestCode.LIST_USER: _ACL,
    RequestCode.CREATE_ACL: _ACL,
    RequestCode.UPDATE_ACL: _ACL,
    RequestCode.DELETE_ACL: _ACL,
    RequestCode.GET_ACL: _ACL,
    RequestCode.LIST_ACL: _ACL,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _REPLICAS,
    RequestCode.GET_ALL_DELAY_OFFSET: _REPLICAS,
    RequestCode.GET_TIMER_CHECK_POINT: _REPLICAS,
    RequestCode.GET_TIMER_METRICS: _REPLICAS,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "static topics, whose queues move between broker "
    "groups, are not supported: make an ordinary topic (17), and add broker groups to it",
    RequestCode.GET_BROKER_HA_STATUS: "replication is Raft's here: see `mqadmin raftStatus`",
    RequestCode.QUERY_CORRECTION_OFFSET: "there are no filter groups whose offsets could differ",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "a half message that was checked too often lies in "
    "TRANS_CHECK_MAX_TIME_TOPIC: read it there, and send it again if it was committed",
}


def not_supported(code: int) -> Refused:
    """The refusal of a code that no handler serves."""
    reason = _REASONS.get(code)
    because = f": {reason}" if reason else ""
    return Refused(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {code} is not supported{because}"
    )
