"""The needs of requests that name topics and groups in their body, or by what is stored. Pure.

A handler that takes more than one shape of a request has all its shapes here. What can't be read is
read once more by the handler, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from dledger import limits
from dledger.errors import BadInput
from dledger.program.settings import names_of
from dledger.remoting import bodies
from dledger.remoting.bodies import decode_body
from dledger.remoting.bodies.access import AclInfo, UserInfo
from dledger.remoting.bodies.routes import CreateTopicListBody
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import EndStagedHeader, WriteOnceHeader, decode_header
from dledger.remoting.message import offset_message_id_decode
from dledger.remoting.numbers import is_number
from dledger.trust.policies import ANY, each_entry
from dledger.trust.rights import (
    CREATE,
    GET,
    PUB,
    SUB,
    UPDATE,
    Action,
    Alternatives,
    Kind,
    Look,
    Need,
    cluster,
    field,
    fields,
    found,
    group,
    group_needs,
    topic,
    topic_needs,
)
from mqbroker.keys import RUNTIME_KEYS


def _consuming(look: Look, group: str, topics: Iterable[str]) -> Iterable[Alternatives]:
    yield from group_needs(group, SUB)
    for name in dict.fromkeys(topics):
        yield from topic_needs(look, name, SUB)


def _sent(request: Command, look: Look) -> Iterable[Alternatives]:
    long = request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    return topic_needs(look, field(request, "topic" if long else "b"), PUB)


def _heartbeat(request: Command, look: Look) -> Iterable[Alternatives]:
    for consumer in decode_body(bodies.HeartbeatData, request.payload).consumer_data_set:
        topics = [each.topic for each in consumer.subscription_data_set]
        yield from _consuming(look, consumer.group_name, topics)


def _locks(request: Command, look: Look) -> Iterable[Alternatives]:
    body = decode_body(bodies.LockBatchBody, request.payload)
    return _consuming(look, body.consumer_group, [queue.topic for queue in body.mq_set])


def _assignment(request: Command, look: Look) -> Iterable[Alternatives]:
    body = decode_body(bodies.QueryAssignmentBody, request.payload)
    return _consuming(look, body.consumer_group, [body.topic])


def _client_config(request: Command, look: Look) -> Iterable[Alternatives]:
    body = decode_body(bodies.CheckClientConfigBody, request.payload)
    return _consuming(look, body.group, [body.subscription_data.topic])


def _batch_ack(request: Command, look: Look) -> Iterable[Alternatives]:
    for ack in decode_body(bodies.BatchAckMessageBody, request.payload).acks:
        yield from _consuming(look, ack.c or ack.consumer_group or "", [ack.t or ack.topic or ""])


def _request_mode(request: Command, look: Look) -> Iterable[Alternatives]:
    body = decode_body(bodies.SetMessageRequestModeBody, request.payload)
    yield from group_needs(body.consumer_group, UPDATE)
    yield from topic_needs(look, body.topic, UPDATE)


def _put_topics(look: Look, topics: Iterable[str]) -> Iterable[Alternatives]:
    for name in topics:
        yield from topic_needs(look, name, UPDATE if look.has_topic(name) else CREATE)


def _topic(request: Command, look: Look) -> Iterable[Alternatives]:
    return _put_topics(look, [field(request, "topic")])


def _topics(request: Command, look: Look) -> Iterable[Alternatives]:
    given = decode_body(CreateTopicListBody, request.payload).topic_config_list
    return _put_topics(look, [config.topic_name for config in given])


def _put_groups(look: Look, groups: Iterable[str]) -> Iterable[Alternatives]:
    for name in groups:
        yield from group_needs(name, UPDATE if look.has_group(name) else CREATE)


def _group(request: Command, look: Look) -> Iterable[Alternatives]:
    config = decode_body(bodies.SubscriptionGroupConfig, request.payload)
    return _put_groups(look, [config.group_name])


def _groups(request: Command, look: Look) -> Iterable[Alternatives]:
    given = decode_body(bodies.SubscriptionGroupList, request.payload).group_config_list
    return _put_groups(look, [config.group_name for config in given])


def _write_once(request: Command, look: Look) -> Iterable[Alternatives]:
    header = decode_header(WriteOnceHeader, request)
    for name, *_ in header.parts:
        yield from topic_needs(look, name, PUB)
    if header.moves:
        yield from _consuming(look, header.group, [name for name, *_ in header.moves])


def _stored(request: Command, look: Look, at: str) -> str:
    """The topic of the message that a field names by its position; "" if none begins there."""
    position = field(request, at)
    if not is_number(position, limits.POSITION_DIGITS_MAX):
        return ""
    return look.topic_at(int(position)) or ""


def _viewed(request: Command, look: Look) -> Iterable[Alternatives]:
    return topic_needs(look, _stored(request, look, "offset"), GET, SUB)


def _sent_back(request: Command, look: Look) -> Iterable[Alternatives]:
    return _consuming(look, field(request, "group"), [_stored(request, look, "offset")])


def _ended(request: Command, look: Look) -> Iterable[Alternatives]:
    return topic_needs(look, _stored(request, look, "commitLogOffset"), PUB)


def _ended_staged(request: Command, look: Look) -> Iterable[Alternatives]:
    yield from _ended(request, look)
    following = decode_header(EndStagedHeader, request).following or []
    for _, position in following[: limits.STAGED_ENDED_TOGETHER_MAX]:  # with more it is refused
        yield from topic_needs(look, look.topic_at(position) or "", PUB)


def _handled(request: Command, look: Look) -> Iterable[Alternatives]:
    yield from group_needs(field(request, "consumerGroup"), UPDATE)
    try:
        position = offset_message_id_decode(field(request, "msgId"))[-1]
    except BadInput:
        position = -1
    yield from topic_needs(look, look.topic_at(position) or "", SUB)


def _cloned(request: Command, look: Look) -> Iterable[Alternatives]:
    yield from group_needs(field(request, "srcGroup"), GET)
    yield from group_needs(field(request, "destGroup"), UPDATE)
    name = field(request, "topic")
    if name:
        yield from topic_needs(look, name, UPDATE)
    else:
        yield (_cluster(look, UPDATE),)


def _left(request: Command, _: Look) -> Iterable[Alternatives]:
    name = field(request, "consumerGroup")
    return group_needs(name, SUB, PUB) if name else ()


def _progress(request: Command, look: Look) -> Iterable[Alternatives]:
    yield from group_needs(field(request, "consumerGroup"), GET)
    name = field(request, "topic")
    if name:
        yield from topic_needs(look, name, GET)


def _statistics(request: Command, look: Look) -> Iterable[Alternatives]:
    name, key = field(request, "statsName"), field(request, "statsKey")
    whole = _cluster(look, GET)
    if name.startswith("TOPIC_"):
        named = topic_needs(look, key, GET)
    elif name.startswith("GROUP_") and "@" in key:
        of_topic, _, of_group = key.partition("@")
        named = (*topic_needs(look, of_topic, GET), *group_needs(of_group, GET))
    else:
        named = ((whole,),)
    return [(*alternatives, whole) for alternatives in named]


def _oneself(request: Command, look: Look) -> Iterable[Alternatives]:
    name = field(request, "username") or field(request, "subject").removeprefix("User:")
    return ((_cluster(look, GET), Need(Kind.USER, name, (GET,))),)


def _user(request: Command) -> Iterable[str]:
    info = decode_body(UserInfo, request.payload)
    yield f"User:{field(request, 'username') or info.username}"
    if info.password:
        yield "a password"
    chosen = {
        "userType": info.user_type,
        "userStatus": info.user_status,
        "requireFresh": info.require_fresh,
    }
    yield from (f"{key}={value}" for key, value in chosen.items() if value not in (None, ""))


def _acl(request: Command) -> Iterable[str]:
    acl = decode_body(AclInfo, request.payload)
    yield field(request, "subject") or acl.subject or ""
    yield from map(str, each_entry(acl))


def _gone_user(request: Command) -> Iterable[str]:
    yield f"User:{field(request, 'username')}"


def _gone_acl(request: Command) -> Iterable[str]:
    yield field(request, "subject")
    yield field(request, "resource") or ANY


def _cluster(look: Look, action: Action) -> Need:
    return Need(Kind.CLUSTER, look.cluster, (action,))


PUT_USER = cluster(UPDATE).naming(_user)
PUT_ACL = cluster(UPDATE).naming(_acl)
DELETE_USER = cluster(UPDATE).naming(_gone_user)
DELETE_ACL = cluster(UPDATE).naming(_gone_acl)
MEMBER = cluster(UPDATE).naming(fields("nodeId", "host", "port", "clientAddr"))
SETTINGS = cluster(UPDATE).naming(names_of(RUNTIME_KEYS))
SENT = found("Topic Pub; to a retry topic Group Sub", _sent)
HEARTBEAT = found("of each consumer Group Sub, Topic Sub", _heartbeat)
LOCKS = found("Group Sub, each Topic Sub", _locks)
ASSIGNMENT = found("Group Sub, Topic Sub", _assignment)
CLIENT_CONFIG = found("Group Sub, Topic Sub", _client_config)
BATCH_ACK = found("each Group Sub, Topic Sub", _batch_ack)
REQUEST_MODE = found("Group Update, Topic Update", _request_mode)
PUT_TOPIC = found("Topic Create, of one that exists Update", _topic)
PUT_TOPICS = found("each Topic Create, of one that exists Update", _topics)
PUT_GROUP = found("Group Create, of one that exists Update", _group)
PUT_GROUPS = found("each Group Create, of one that exists Update", _groups)
WRITE_ONCE = found("each Topic Pub; with offsets Group Sub, Topic Sub", _write_once)
VIEWED = found("Topic Get or Sub of the message", _viewed)
SENT_BACK = found("Group Sub, Topic Sub of the message", _sent_back)
ENDED = found("Topic Pub of the message", _ended)
ENDED_STAGED = found("Topic Pub of each message", _ended_staged)
HANDLED = found("Group Update, Topic Sub of the message", _handled)
CLONED = found(
    "source Group Get, destination Group Update, Topic Update; all topics: Cluster Update",
    _cloned,
)
LEFT = found("Group Sub or Pub", _left)
PROGRESS = found("Group Get, Topic Get if there is one", _progress)
STATISTICS = found("Cluster Get, or Get of the topic or group", _statistics)
ONESELF = found("Cluster Get, or to be that user", _oneself)
CONSUME = group(SUB, at="consumerGroup") & topic(SUB)
"""The rights for a consumer's own work."""
TIME_SPAN = group(GET) & topic(GET)
