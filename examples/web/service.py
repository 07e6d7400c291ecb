"""A web service that sends: `NAMESRV=127.0.0.1:9876 uvicorn service:app`.

The producer lives as long as the application: it is opened before the first request, and closing it
at the end sends what was handed over. Starlette is all that is needed; FastAPI takes the same
`lifespan`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mqclient import DledgerError, Message, Producer
from mqclient.contrib.codecs import JSON

NAMESRV = os.environ.get("NAMESRV", "127.0.0.1:9876")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Keep a producer open while the application serves."""
    async with Producer(NAMESRV, group="shop", encode=JSON.encode) as producer:
        app.state.producer = producer
        yield


async def order(request: Request) -> JSONResponse:
    """Take an order: the answer is sent once a majority of the replicas has it."""
    wanted = await request.json()
    producer: Producer = request.app.state.producer
    try:
        message = Message("Orders", value=wanted, keys=str(wanted["id"]))
        sent = await producer.send(message, key=str(wanted["customer"]), timeout_s=5)
    except DledgerError as error:
        # `definite` says whether the order may be stored although it was not acknowledged.
        return JSONResponse({"error": str(error)}, 503)
    return JSONResponse({"id": sent.message_id}, 201)


app = Starlette(routes=[Route("/orders", order, methods=["POST"])], lifespan=lifespan)
