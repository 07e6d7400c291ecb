"""The JSON bodies of requests and responses, as typed structs.

``base``    how a body is written, in which dialect, and how it is read whatever the dialect
``staged``  what half messages and decisions say of staged entries (pure)
``routes``  where the queues of topics are
``groups``  consumers and their groups
``state``   the state of queues and groups, for tools
``access``  users, and what they may do

RocketMQ writes two dialects of one document: the standard one, and a loose one that leaves
numeric map keys unquoted and uses whole objects as map keys (`dledger.remoting.json_dialect`).
Both are read; which one is written is the caller's choice, since only the loose form is proven
with clients before 4.9.4. Members that a struct does not know are ignored, members that are
missing get their defaults, as with the reference's decoder. Shapes: RocketMQ's classes of the
same names.
"""

from __future__ import annotations

from dledger.remoting.bodies.base import (
    Body,
    Dialect,
    decode_body,
    encode_body,
)
from dledger.remoting.bodies.groups import (
    BatchAck,
    BatchAckMessageBody,
    CheckClientConfigBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    ProducerData,
    QueryAssignmentBody,
    QueryAssignmentResponseBody,
    QueueAssignment,
    SetMessageRequestModeBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from dledger.remoting.bodies.routes import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    CreateTopicListBody,
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicRouteData,
)
from dledger.remoting.bodies.state import (
    BrokerStatsData,
    BrokerStatsItem,
    ClientConnection,
    ConsumeQueueData,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumerStatusFromClientBody,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    HistoryBody,
    OffsetWrapper,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    QueueOffset,
    QueueTimeSpan,
    ResetOffsetBody,
    ResetOffsetListBody,
    TopicOffset,
    TopicStats,
)
from dledger.remoting.json_dialect import MessageQueue

__all__ = [
    "BatchAck",
    "BatchAckMessageBody",
    "Body",
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerMemberGroupBody",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CheckClientConfigBody",
    "ClientConnection",
    "ClusterInfo",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerIdList",
    "ConsumerRunningInfo",
    "ConsumerStatusBody",
    "ConsumerStatusFromClientBody",
    "CreateTopicListBody",
    "DataVersion",
    "Dialect",
    "GroupList",
    "HeartbeatData",
    "HistoryBody",
    "KVTable",
    "LockBatchBody",
    "LockBatchResponseBody",
    "MessageQueue",
    "OffsetWrapper",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryAssignmentBody",
    "QueryAssignmentResponseBody",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QuerySubscriptionResponseBody",
    "QueueAssignment",
    "QueueData",
    "QueueOffset",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "ResetOffsetListBody",
    "SetMessageRequestModeBody",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
    "TopicConfig",
    "TopicConfigWrapper",
    "TopicList",
    "TopicOffset",
    "TopicRouteData",
    "TopicStats",
    "decode_body",
    "encode_body",
]
