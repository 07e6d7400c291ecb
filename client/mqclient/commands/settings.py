"""Configs of brokers and name servers, key-value entries, write permissions, cleaning."""

from __future__ import annotations

from dledger.remoting.codes import RequestCode
from mqclient.admin import Admin, UnknownTarget
from mqclient.admin.results import PermChange, ServerConfig
from mqclient.commands.terminal.options import (
    DEFAULTS,
    AskedBroker,
    AskedCluster,
    BrokerName,
    ChangedBroker,
    ChangedCluster,
    CleanedBroker,
    CleanedCluster,
    Common,
    Key,
    Namespace,
    Value,
)
from mqclient.commands.terminal.output import Table, joined, plural


def get_broker_config(
    *, broker: AskedBroker = None, cluster: AskedCluster = None, common: Common = DEFAULTS
) -> None:
    """Show the configs of brokers as they are in force, without secrets.

    For example:

        mqadmin getBrokerConfig
        mqadmin getBrokerConfig -b broker-a
    """
    found = common.ask(lambda admin: admin.settings.broker_config(broker, cluster))
    common.show("getBrokerConfig", found, _configs(found))


def update_broker_config(
    *,
    key: Key,
    value: Value,
    broker: ChangedBroker = None,
    cluster: ChangedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """Change a config key on all members of a broker group, now and over restarts.

    docs/reference/broker.md says which keys can change.

    For example:

        mqadmin updateBrokerConfig -b broker-a -k maxMessageSize -v 1048576

    Parameters
    ----------
    key
        A key that can change while a broker runs; others are refused.
    value
        Its new value; an empty one gives back what the config file says.
    """
    names = common.ask(
        lambda admin: admin.settings.update_broker_config(key, value, broker, cluster)
    )
    note = f"{key} is {value or 'as in the config file'} on {joined(names)}"
    result = {"key": key, "value": value, "brokers": names}
    common.say("updateBrokerConfig", result, note)


def get_namesrv_config(*, common: Common = DEFAULTS) -> None:
    """Show the config of every name server.

    For example:

        mqadmin getNamesrvConfig -n 127.0.0.1:9876
    """
    found = common.ask(lambda admin: admin.settings.namesrv_config())
    common.show("getNamesrvConfig", found, _configs(found))


def update_namesrv_config(*, key: Key, value: Value, common: Common = DEFAULTS) -> None:
    """Change a config key on every name server, until the name server is started again.

    An example of a key is returnOrderTopicConfigToBroker.

    For example:

        mqadmin updateNamesrvConfig -k authorizationMode -v observe

    Parameters
    ----------
    key
        A key that can change while a name server runs; others are refused.
    value
        Its new value.
    """
    addresses = common.ask(lambda admin: admin.settings.update_namesrv_config(key, value))
    result = {"key": key, "value": value, "namesrvs": addresses}
    note = f"{key} is {value} on {joined(addresses)}"
    common.say("updateNamesrvConfig", result, note)


def update_kv_config(
    *, namespace: Namespace, key: Key, value: Value, common: Common = DEFAULTS
) -> None:
    """Set a key-value entry on every name server, until it is deleted.

    For example:

        mqadmin updateKvConfig -s ORDER_TOPIC_CONFIG -k Orders -v broker-a:8

    Parameters
    ----------
    key
        Within the namespace.
    value
        Its new value.
    """
    addresses = common.ask(lambda admin: admin.settings.update_kv_config(namespace, key, value))
    result = {"namespace": namespace, "key": key, "value": value, "namesrvs": addresses}
    note = f"{namespace}/{key} is set on {joined(addresses)}"
    common.say("updateKvConfig", result, note)


def delete_kv_config(*, namespace: Namespace, key: Key, common: Common = DEFAULTS) -> None:
    """Remove a key-value entry from every name server.

    For example:

        mqadmin deleteKvConfig -s ORDER_TOPIC_CONFIG -k Orders -n 127.0.0.1:9876

    Parameters
    ----------
    key
        Within the namespace.
    """

    async def delete(admin: Admin) -> tuple[str, ...]:
        if not await admin.settings.has_kv_config(namespace, key):
            raise UnknownTarget(f"there is no entry {namespace}/{key}: check both names")
        return await admin.settings.delete_kv_config(namespace, key)

    addresses = common.ask(delete)
    result = {"namespace": namespace, "key": key, "namesrvs": addresses}
    note = f"{namespace}/{key} is deleted on {joined(addresses)}"
    common.say("deleteKvConfig", result, note)


def wipe_write_perm(*, broker: BrokerName, common: Common = DEFAULTS) -> None:
    """Keep producers away from a broker group: routes say that its topics are not writable.

    docs/reference/broker.md, Permissions, says which producers stay away.

    For example:

        mqadmin wipeWritePerm -b broker-a -n 127.0.0.1:9876
    """
    changes = common.ask(lambda admin: admin.settings.set_write_perm(broker, writable=False))
    common.show("wipeWritePerm", changes, _perms(changes))


def add_write_perm(*, broker: BrokerName, common: Common = DEFAULTS) -> None:
    """Allow writes to a broker group again.

    Topics that are read-only at their brokers stay so.

    For example:

        mqadmin addWritePerm -b broker-a -n 127.0.0.1:9876
    """
    changes = common.ask(lambda admin: admin.settings.set_write_perm(broker, writable=True))
    common.show("addWritePerm", changes, _perms(changes))


def clean_expired_cq(
    *, broker: CleanedBroker = None, cluster: CleanedCluster = None, common: Common = DEFAULTS
) -> None:
    """Remove consume queues whose messages are gone; our brokers do so by themselves.

    For example:

        mqadmin cleanExpiredCQ -c DefaultCluster
    """
    _clean("cleanExpiredCQ", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster, common)


def clean_unused_topic(
    *, broker: CleanedBroker = None, cluster: CleanedCluster = None, common: Common = DEFAULTS
) -> None:
    """Remove the remains of deleted topics; our brokers leave none.

    For example:

        mqadmin cleanUnusedTopic -c DefaultCluster
    """
    _clean("cleanUnusedTopic", RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster, common)


def _clean(
    command: str, code: RequestCode, broker: str | None, cluster: str | None, common: Common
) -> None:
    addresses = common.ask(lambda admin: admin.brokers.clean(code, broker, cluster))
    note = f"{plural(len(addresses), 'broker')} cleaned: {joined(addresses)}"
    common.say(command, {"brokers": addresses}, note)


def _configs(found: tuple[ServerConfig, ...]) -> Table:
    rows = [
        (server.address, key, value)
        for server in found
        for key, value in sorted(server.config.items())
    ]
    return Table(("ADDRESS", "KEY", "VALUE"), rows)


def _perms(changes: tuple[PermChange, ...]) -> Table:
    rows = [
        (change.broker_name, change.namesrv, "yes" if change.writable else "no", change.topics)
        for change in changes
    ]
    return Table(("BROKER", "NAME SERVER", "WRITABLE", "TOPICS"), rows)
