"""A WSGI application that sends: `NAMESRV=127.0.0.1:9876 gunicorn --preload -w 3 shop_wsgi`.

So do applications of Django and Flask. The producer is made when the module is imported, and opened
at a worker's first request: gunicorn forks the workers after the import, and what is open can't be
used in a fork. A worker's threads share it. When the worker ends, what was handed over is sent.
"""

import atexit
import json
import os
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any

from mqclient import DledgerError
from mqclient.blocking import Message, Producer
from mqclient.contrib.codecs import JSON

NAMESRV = os.environ.get("NAMESRV", "127.0.0.1:9876")

_producer = Producer(NAMESRV, group="shop", encode=JSON.encode)
_opening = Lock()
_is_open = False


def producer() -> Producer:
    """The producer of this process, open."""
    global _is_open  # noqa: PLW0603 - it belongs to the process
    with _opening:
        if not _is_open:
            _producer.open()
            atexit.register(_producer.close)
            _is_open = True
    return _producer


def take_order(wanted: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The status and the answer, once a majority of the replicas has the order."""
    message = Message("Orders", value=wanted, keys=str(wanted["id"]))
    try:
        sent = producer().send(message, key=str(wanted["customer"]), timeout_s=5)
    except DledgerError as error:
        return "503 Service Unavailable", {"error": str(error)}
    return "201 Created", {"id": sent.message_id}


def application(
    environ: Mapping[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """Answer a request; gunicorn calls this for each."""
    size = int(environ.get("CONTENT_LENGTH") or 0)
    status, answer = take_order(json.loads(environ["wsgi.input"].read(size)))
    body = json.dumps(answer).encode()
    start_response(
        status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    )
    return [body]
