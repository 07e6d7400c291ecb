"""doctor says what is wrong with a cluster; bundle collects what somebody else needs to say so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dledger.errors import ConfigError
from mqclient.admin.doctor.bundle import ends_of_logs, read_bundle, write_bundle
from mqclient.admin.doctor.checks import CHECKS, findings, not_asked
from mqclient.commands.terminal.options import DEFAULTS, Common
from mqclient.commands.terminal.output import Table, moment, plural


def doctor(
    *,
    offline: Annotated[Path | None, Parameter(name="--offline")] = None,
    common: Common = DEFAULTS,
) -> None:
    """Say what is wrong with a cluster, where, and what to do about it.

    Every server is asked, and nothing is changed. Exit status 0 if nothing was found wrong, 1 if
    something was. Servers that could not be asked are named. docs/how-to/doctor.md has the checks.

    For example:

        mqadmin doctor -n 127.0.0.1:9876
        mqadmin doctor --offline cluster.tar.gz

    Parameters
    ----------
    offline
        Judge this archive of `mqadmin bundle` instead of a running cluster.
    """
    if offline is not None:
        facts = read_bundle(offline)
    else:
        facts = common.ask(lambda admin: admin.doctor.facts())
    found = findings(facts)
    headers = ("CHECK", "WHERE", "WHAT", "DO")
    rows = [(each.check, each.where, each.what, each.remedy) for each in found]
    asked = f"{plural(len(facts.brokers), 'broker')}, {len(facts.name_servers)} name servers"
    said = f"{plural(len(found), 'finding')}" if found else "nothing was found wrong"
    note = f"{said}: {len(CHECKS)} checks of {asked}, as of {moment(facts.asked_ms)}"
    common.show("doctor", found, Table(headers, rows, [note], not_asked(facts)))
    if found:
        raise SystemExit(1)


def bundle(
    file: Path,
    *,
    log: Annotated[tuple[Path, ...], Parameter(name="--log")] = (),
    common: Common = DEFAULTS,
) -> None:
    """Collect what is known of a cluster in one archive, for somebody else to look at.

    It has the configs of all servers without secrets, their figures of the last hour, the
    state of Raft, and the ends of the logs that are named. Only you may read it. Look into it
    before you pass it on: addresses, and the names of topics, groups and clients are in it.

    For example:

        mqadmin bundle cluster.tar.gz -n 127.0.0.1:9876
        mqadmin bundle cluster.tar.gz --log broker.log --log namesrv.log

    Parameters
    ----------
    file
        The archive; it must not be there yet.
    log
        A log file on this machine; its last MiB is taken. May be given more than once.
    """
    if not str(file).isprintable():
        raise ConfigError(f"{str(file)!a} is not a name for an archive: it is not plain text")
    logs = ends_of_logs(log)
    facts = common.ask(lambda admin: admin.doctor.facts(with_history=True))
    write_bundle(file, facts, logs)
    shown = {"file": str(file), "brokers": len(facts.brokers), "logs": len(logs)}
    note = f"{file}: {plural(len(facts.brokers), 'broker')}, {plural(len(logs), 'log')}"
    common.show("bundle", shown, Table((), (), [note], not_asked(facts)))
