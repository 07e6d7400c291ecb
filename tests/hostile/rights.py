"""A request of each code that a broker serves, and its needs, stated a second time by hand.

Everything is about the topic Orders, the group C and the message that begins at `position`.
"""

from __future__ import annotations

import json
from typing import Final

from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import WriteOnceHeader, encode_header
from dledger.remoting.message import host_bytes, offset_message_id
from mqbroker.testing.requests import (
    heartbeat,
    produce_request,
    pull_request,
    send_request,
    topic_request,
)

OPEN: Final = {Code.PROVE, Code.GROUP_INFO, Code.SIGN_ON}
"""Codes that are answered to anybody."""
SIGNED: Final = {
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Code.REGISTER_PRODUCER,
    Code.DECISION_OF,
}
"""Answered to any user, lists cut to what that one may see."""
SUPER: Final = {Code.LIST_AUDITED}
"""Answered to super users, and to the cluster's secret."""
CLUSTER_UPDATE: Final = {
    Code.ADD_MEMBER,
    Code.REMOVE_MEMBER,
    Code.TRANSFER_LEADER,
    Code.EXPORT_REPLICA,
    Code.UPDATE_BROKER_CONFIG,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC,
    Code.DELETE_EXPIRED_COMMITLOG,
    Code.CREATE_USER,
    Code.UPDATE_USER,
    Code.DELETE_USER,
    Code.CREATE_ACL,
    Code.UPDATE_ACL,
    Code.DELETE_ACL,
}
CLUSTER_GET: Final = {
    Code.GET_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_ALL_PRODUCER_INFO,
    Code.GET_BROKER_CONSUME_STATS,
    Code.LIST_SCHEDULED,
    Code.GET_USER,
    Code.LIST_USER,
    Code.GET_ACL,
    Code.LIST_ACL,
    Code.LIST_OBSERVED,
    Code.VIEW_HISTORY,
}
_TOPIC: Final = {"topic": "Orders", "queueId": 0}
_GROUP: Final = {"group": "C"}
_CONSUMER: Final = {"consumerGroup": "C"}
_BOTH: Final = _TOPIC | _CONSUMER
_CONSUMES: Final = ("Group:C Sub", "Topic:Orders Sub")


def _json(code: int, body: object) -> Command:
    return Command(code, {}, json.dumps(body).encode())


def requests(position: int) -> dict[Code, tuple[Command, tuple[str, ...]]]:
    """Requests and their needs by code; a need is a resource and actions of which one is enough."""
    by_cluster = {
        code: (Command(code), ("Cluster:DefaultCluster Update",)) for code in CLUSTER_UPDATE
    }
    by_cluster |= {code: (Command(code), ("Cluster:DefaultCluster Get",)) for code in CLUSTER_GET}
    message_id = offset_message_id(host_bytes("127.0.0.1", 1), position)
    once = WriteOnceHeader("n", 1, 0, 1, [("Orders", 0, [])], "C", [("Orders", 0, 0, 0, None)])
    long = {"producerGroup": "P", "topic": "Orders", "defaultTopic": "TBW102", "queueId": 0}
    mode = {"topic": "Orders", "consumerGroup": "C", "mode": "POP", "popShareQueueNum": 0}
    member = {"topic": "Orders", "consumerGroup": "C", "clientId": "c"}
    asked = {"clientId": "c", "group": "C", "subscriptionData": {"topic": "Orders"}}
    queues = {"consumerGroup": "C", "clientId": "c", "mqSet": []}
    ack = {"c": "C", "t": "Orders", "r": "0", "so": 0, "q": 0, "pt": 0, "b": "AQ=="}
    locks = {**queues, "mqSet": [{"topic": "Orders", "brokerName": "broker-a", "queueId": 0}]}

    def of(code: Code, ext: dict[str, ExtValue], *needs: str) -> tuple[Command, tuple[str, ...]]:
        return Command(code, ext), needs

    return by_cluster | {
        Code.SEND_MESSAGE: of(Code.SEND_MESSAGE, long, "Topic:Orders Pub"),
        Code.SEND_MESSAGE_V2: (send_request(), ("Topic:Orders Pub",)),
        Code.SEND_BATCH_MESSAGE: (
            send_request(b"", Code.SEND_BATCH_MESSAGE),
            ("Topic:Orders Pub",),
        ),
        Code.SEND_REPLY_MESSAGE: of(Code.SEND_REPLY_MESSAGE, long, "Topic:Orders Pub"),
        Code.SEND_REPLY_MESSAGE_V2: (
            send_request(b"", Code.SEND_REPLY_MESSAGE_V2),
            ("Topic:Orders Pub",),
        ),
        Code.PRODUCE: (produce_request("k"), ("Topic:Orders Pub",)),
        Code.STAGE: of(Code.STAGE, {"topic": "Orders"}, "Topic:Orders Pub"),
        Code.END_STAGED: of(
            Code.END_STAGED, {"offset": 0, "commitLogOffset": position}, "Topic:Orders Pub"
        ),
        Code.WRITE_ONCE: (
            Command(Code.WRITE_ONCE, encode_header(once)),
            ("Topic:Orders Pub", *_CONSUMES),
        ),
        Code.RECALL_MESSAGE: of(Code.RECALL_MESSAGE, {"topic": "Orders"}, "Topic:Orders Pub"),
        Code.END_TRANSACTION: of(
            Code.END_TRANSACTION, {"commitLogOffset": position}, "Topic:Orders Pub"
        ),
        Code.CONSUMER_SEND_MSG_BACK: of(
            Code.CONSUMER_SEND_MSG_BACK, _GROUP | {"offset": position, "delayLevel": 0}, *_CONSUMES
        ),
        Code.PULL_MESSAGE: (pull_request(), _CONSUMES),
        Code.LITE_PULL_MESSAGE: of(Code.LITE_PULL_MESSAGE, _BOTH, *_CONSUMES),
        Code.POP_MESSAGE: of(Code.POP_MESSAGE, _BOTH, *_CONSUMES),
        Code.PEEK_MESSAGE: of(Code.PEEK_MESSAGE, _BOTH, *_CONSUMES),
        Code.NOTIFICATION: of(Code.NOTIFICATION, _BOTH, *_CONSUMES),
        Code.ACK_MESSAGE: of(Code.ACK_MESSAGE, _BOTH, *_CONSUMES),
        Code.CHANGE_MESSAGE_INVISIBLETIME: of(Code.CHANGE_MESSAGE_INVISIBLETIME, _BOTH, *_CONSUMES),
        Code.BATCH_ACK_MESSAGE: (_json(Code.BATCH_ACK_MESSAGE, {"acks": [ack]}), _CONSUMES),
        Code.POLLING_INFO: of(Code.POLLING_INFO, _BOTH, "Group:C Get", "Topic:Orders Get"),
        Code.VIEW_MESSAGE_BY_ID: of(
            Code.VIEW_MESSAGE_BY_ID, {"offset": position}, "Topic:Orders Get|Sub"
        ),
        Code.QUERY_MESSAGE: of(Code.QUERY_MESSAGE, _TOPIC, "Topic:Orders Sub|Get"),
        **{
            code: of(code, _TOPIC, "Topic:Orders Get|Sub")
            for code in (
                Code.GET_MAX_OFFSET,
                Code.GET_MIN_OFFSET,
                Code.SEARCH_OFFSET_BY_TIMESTAMP,
                Code.GET_EARLIEST_MSG_STORETIME,
            )
        },
        Code.QUERY_CONSUMER_OFFSET: of(
            Code.QUERY_CONSUMER_OFFSET, _BOTH, "Group:C Sub|Get", "Topic:Orders Sub|Get"
        ),
        Code.UPDATE_CONSUMER_OFFSET: of(
            Code.UPDATE_CONSUMER_OFFSET, _BOTH, "Group:C Sub|Update", "Topic:Orders Sub|Update"
        ),
        Code.HEART_BEAT: (Command(Code.HEART_BEAT, {}, heartbeat("c")), _CONSUMES),
        Code.UNREGISTER_CLIENT: of(Code.UNREGISTER_CLIENT, _CONSUMER, "Group:C Sub|Pub"),
        Code.GET_CONSUMER_LIST_BY_GROUP: of(
            Code.GET_CONSUMER_LIST_BY_GROUP, _CONSUMER, "Group:C Sub|Get"
        ),
        Code.CHECK_CLIENT_CONFIG: (_json(Code.CHECK_CLIENT_CONFIG, asked), _CONSUMES),
        Code.LOCK_BATCH_MQ: (_json(Code.LOCK_BATCH_MQ, locks), _CONSUMES),
        Code.UNLOCK_BATCH_MQ: (_json(Code.UNLOCK_BATCH_MQ, locks), _CONSUMES),
        Code.QUERY_ASSIGNMENT: (_json(Code.QUERY_ASSIGNMENT, member), _CONSUMES),
        Code.SET_MESSAGE_REQUEST_MODE: (
            _json(Code.SET_MESSAGE_REQUEST_MODE, mode),
            ("Group:C Update", "Topic:Orders Update"),
        ),
        Code.UPDATE_AND_CREATE_TOPIC: (topic_request(), ("Topic:Orders Update",)),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: (
            _json(
                Code.UPDATE_AND_CREATE_TOPIC_LIST,
                {"topicConfigList": [{"topicName": "New"}, {"topicName": "Orders"}]},
            ),
            ("Topic:New Create", "Topic:Orders Update"),
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (
            _json(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "C"}),
            ("Group:C Update",),
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
            _json(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                {"groupConfigList": [{"groupName": "New"}, {"groupName": "C"}]},
            ),
            ("Group:New Create", "Group:C Update"),
        ),
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: of(
            Code.GET_SUBSCRIPTIONGROUP_CONFIG, _GROUP, "Group:C Get"
        ),
        Code.GET_CONSUMER_CONNECTION_LIST: of(
            Code.GET_CONSUMER_CONNECTION_LIST, _CONSUMER, "Group:C Get"
        ),
        Code.GET_CONSUMER_RUNNING_INFO: of(
            Code.GET_CONSUMER_RUNNING_INFO, _CONSUMER, "Group:C Get"
        ),
        Code.QUERY_TOPICS_BY_CONSUMER: of(Code.QUERY_TOPICS_BY_CONSUMER, _GROUP, "Group:C Get"),
        **{
            code: of(code, _TOPIC | _GROUP, "Group:C Get", "Topic:Orders Get")
            for code in (
                Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
                Code.QUERY_CONSUME_TIME_SPAN,
                Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            )
        },
        Code.GET_CONSUME_STATS: of(
            Code.GET_CONSUME_STATS, _BOTH, "Group:C Get", "Topic:Orders Get"
        ),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: of(
            Code.QUERY_TOPIC_CONSUME_BY_WHO, _TOPIC, "Topic:Orders Get"
        ),
        Code.GET_TOPIC_CONFIG: of(Code.GET_TOPIC_CONFIG, _TOPIC, "Topic:Orders Get|Sub|Pub"),
        Code.GET_TOPIC_STATS_INFO: of(Code.GET_TOPIC_STATS_INFO, _TOPIC, "Topic:Orders Get"),
        Code.QUERY_CONSUME_QUEUE: of(Code.QUERY_CONSUME_QUEUE, _TOPIC, "Topic:Orders Get"),
        Code.VIEW_BROKER_STATS_DATA: of(
            Code.VIEW_BROKER_STATS_DATA,
            {"statsName": "BROKER_PUT_NUMS", "statsKey": ""},
            "Cluster:DefaultCluster Get",
        ),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: of(
            Code.INVOKE_BROKER_TO_RESET_OFFSET,
            _TOPIC | _GROUP,
            "Group:C Update",
            "Topic:Orders Update",
        ),
        Code.CLONE_GROUP_OFFSET: of(
            Code.CLONE_GROUP_OFFSET,
            {"srcGroup": "C", "destGroup": "D", "topic": "Orders"},
            *("Group:C Get", "Group:D Update", "Topic:Orders Update"),
        ),
        Code.CONSUME_MESSAGE_DIRECTLY: of(
            Code.CONSUME_MESSAGE_DIRECTLY,
            _CONSUMER | {"clientId": "c", "msgId": message_id},
            *("Group:C Update", "Topic:Orders Sub"),
        ),
        # Deletions go last: what they name is not there afterwards.
        Code.DELETE_SUBSCRIPTIONGROUP: of(
            Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "C"}, "Group:C Delete"
        ),
        Code.DELETE_TOPIC_IN_BROKER: of(
            Code.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}, "Topic:Orders Delete"
        ),
    }
