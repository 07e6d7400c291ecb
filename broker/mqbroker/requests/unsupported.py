"""Request codes that this broker knows and does not serve, and why.

Every code of `RequestCode` is either declared by one handler or listed here. For other codes the
answer only names the number. In both cases its code is 3 (REQUEST_CODE_NOT_SUPPORTED), and stock
tools print the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.refusal import Refused

_ACL = "access lists are those of ACL 2.0: mqadmin createUser and createAcl (3001 to 3010)"
_REPLICAS = "replicas take all state out of the replicated log, and none by requests"

_TO_CLIENTS = "brokers ask clients this, and nobody asks brokers"
_TO_NAME_SERVERS = "name servers answer this: ask one of them"

REASONS: Final[Mapping[int, str]] = {
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _REPLICAS,
    RequestCode.REGISTER_USERS: _TO_NAME_SERVERS,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _ACL,
    RequestCode.DELETE_ACL_CONFIG: _ACL,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _ACL,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _ACL,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _REPLICAS,
    RequestCode.GET_ALL_DELAY_OFFSET: _REPLICAS,
    RequestCode.GET_TIMER_CHECK_POINT: _REPLICAS,
    RequestCode.GET_TIMER_METRICS: _REPLICAS,
    RequestCode.CHECK_TRANSACTION_STATE: _TO_CLIENTS,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _TO_CLIENTS,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _TO_CLIENTS,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _TO_CLIENTS,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _TO_CLIENTS,
    RequestCode.PUT_KV_CONFIG: _TO_NAME_SERVERS,
    RequestCode.GET_KV_CONFIG: _TO_NAME_SERVERS,
    RequestCode.DELETE_KV_CONFIG: _TO_NAME_SERVERS,
    RequestCode.REGISTER_BROKER: _TO_NAME_SERVERS,
    RequestCode.UNREGISTER_BROKER: _TO_NAME_SERVERS,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _TO_NAME_SERVERS,
    RequestCode.GET_BROKER_CLUSTER_INFO: _TO_NAME_SERVERS,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _TO_NAME_SERVERS,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _TO_NAME_SERVERS,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _TO_NAME_SERVERS,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _TO_NAME_SERVERS,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _TO_NAME_SERVERS,
    RequestCode.GET_TOPICS_BY_CLUSTER: _TO_NAME_SERVERS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _TO_NAME_SERVERS,
    RequestCode.GET_UNIT_TOPIC_LIST: _TO_NAME_SERVERS,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _TO_NAME_SERVERS,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _TO_NAME_SERVERS,
    RequestCode.UPDATE_NAMESRV_CONFIG: _TO_NAME_SERVERS,
    RequestCode.GET_NAMESRV_CONFIG: _TO_NAME_SERVERS,
    RequestCode.QUERY_DATA_VERSION: _TO_NAME_SERVERS,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _TO_NAME_SERVERS,
    RequestCode.GET_BROKER_MEMBER_GROUP: _TO_NAME_SERVERS,
    RequestCode.BROKER_HEARTBEAT: _TO_NAME_SERVERS,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: "who leads follows from the log, and not from who has "
    "the lowest broker id",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "static topics, whose queues move between broker "
    "groups, are not supported: make an ordinary topic (17), and add broker groups to it",
    RequestCode.GET_BROKER_HA_STATUS: "replication is Raft's here: see `mqadmin raftStatus`",
    RequestCode.QUERY_CORRECTION_OFFSET: "there are no filter groups whose offsets could differ",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "a half message that was checked too often lies in "
    "TRANS_CHECK_MAX_TIME_TOPIC: read it there, and send it again if it was committed",
}


def not_supported(code: int) -> Refused:
    """The refusal of a code that no handler serves."""
    reason = REASONS.get(code)
    because = f": {reason}" if reason else ""
    return Refused(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {code} is not supported{because}"
    )
